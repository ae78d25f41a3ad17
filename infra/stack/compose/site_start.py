"""The first step of a site in containers: `python -m infra.stack.compose.site_start`, once per start.

It creates the topics of the catalogue, the site's first records, and everybody's password, rights and quotas; on
Kubernetes, users and rights are Strimzi's. With profile `sites`, the site starts as the active one only if it can prove
that it is. Exit code 1 where the broker's topics differ from the catalogue. With the argument `users` it only makes
the users, for a broker that somebody else fills.
"""

import sys
from dataclasses import replace
from typing import Annotated

from confluent_kafka import KafkaException
from pydantic import Field

from contracts.kafka_address import identity_file
from infra.base.errors import NotReady
from infra.base.settings import FromEnvironment
from infra.log.control import Address
from infra.log.topics import Unsafe, catalogue, drift
from infra.stack.compose.engine import SITES, USERS
from infra.stack.security import secure_brokers
from infra.stack.start import prepare_log, prove_role

Count = Annotated[int, Field(ge=1)]


class StartSettings(FromEnvironment):
    """Environment variables: DAYBOOK_ before each.

    `kafka` is the address for the super user, whose file lies beside those of all principals; `kafka_internal` is for
    brokers, who have a certificate, and empty where somebody else makes the users. A record counts as written when
    `in_sync` of the `replicas` of its partition have it. `profiles` are those of compose, with commas; `peer` is the
    other site and `peer_kafka` the address of its broker for this site.
    """

    kafka: str
    kafka_internal: str = ""
    site: str = "home"
    replicas: Count = 1
    in_sync: Count = 1
    profiles: str = ""
    peer: str = ""
    peer_kafka: str = ""


def start(settings: StartSettings) -> list[str]:
    """Prepare the log and prove the role. Returns where the broker's topics still differ, in words.

    Raises KafkaException, NotReady, TimeoutError or Unsafe.
    """
    topics = {
        name: replace(topic, replication=settings.replicas, min_in_sync=settings.in_sync)
        for name, topic in catalogue().items()
    }
    created, corrected = prepare_log(settings.kafka_internal or settings.kafka, settings.site, topics)
    make_users(settings)
    print(f"{len(created)} topics created, {len(topics) - len(created)} existed", flush=True)
    for line in corrected:
        print(f"corrected: {line}", flush=True)
    if settings.peer and SITES in settings.profiles.split(","):
        own, other = Address(settings.site, settings.kafka), Address(settings.peer, settings.peer_kafka)
        print(f"{settings.site} is {prove_role(own, other)}", flush=True)
    return drift(settings.kafka, topics)


def make_users(settings: StartSettings) -> None:
    """Give everybody a password, rights and quotas, if that is this step's part. Raises KafkaException, NotReady."""
    if settings.kafka_internal and identity_file(settings.kafka):
        added, removed = secure_brokers(settings.kafka_internal, settings.kafka)
        print(f"rights: {added} added, {removed} removed", flush=True)


def main() -> None:
    """Ends the process with exit code 1 and the reason where it fails."""
    settings = StartSettings()  # type: ignore[call-arg] # from the environment
    differences = list[str]()
    try:
        if sys.argv[1:] == [USERS]:
            make_users(settings)
        else:
            differences = start(settings)
    except (KafkaException, NotReady, TimeoutError, Unsafe) as reason:
        sys.exit(f"topics: {reason}")
    if differences:
        sys.exit("\n".join(f"topics: {difference}" for difference in differences))


if __name__ == "__main__":
    main()
