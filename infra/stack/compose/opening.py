"""Before any service of a site asks: the topics of the catalogue, the site's first records, and its role.

Where profile `sites` is on, a site starts as the active one only if it can prove that it is. `python -m
infra.stack.compose.opening`, once per start. Exit code 1 where the broker's topics are not as wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from confluent_kafka import KafkaException
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from infra.base.waiting import wait_until
from infra.log.asking import Address
from infra.log.topic_safety import Unsafe, make_safe
from infra.log.topics import Topic, catalogue, create_topics, drift, ensure_site
from infra.stack.start import prove_role

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.5
SITES = "sites"
Count = Annotated[int, Field(ge=1)]


class OpeningSettings(BaseSettings):
    """Environment variables: DAYBOOK_ before each.

    `replicas` of every partition, of which `in_sync` must have a record before it counts as written. `profiles`
    are those of compose, with commas; `peer` is the other site and `peer_kafka` the way to its broker.
    """

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    kafka: str
    site: str = "home"
    replicas: Count = 1
    in_sync: Count = 1
    profiles: str = ""
    peer: str = ""
    peer_kafka: str = ""


def wanted_topics(settings: OpeningSettings) -> Mapping[str, Topic]:
    """The catalogue, with as many replicas as this site's cluster keeps."""
    return {
        name: replace(topic, replication=settings.replicas, min_in_sync=settings.in_sync)
        for name, topic in catalogue().items()
    }


def open_site(settings: OpeningSettings) -> list[str]:
    """Create what is missing; answers where the broker differs all the same.

    Raises KafkaException, TimeoutError or Unsafe where the broker does not do it within a minute.
    """
    wanted = wanted_topics(settings)

    def opened() -> list[str]:
        created = create_topics(settings.kafka, wanted)
        ensure_site(settings.kafka, settings.site)
        return created

    # A young broker names itself leader of a partition before it is; both steps may be repeated.
    created = wait_until(
        opened,
        "the broker takes the topics and the site's role",
        PATIENCE_SECONDS,
        enough=lambda _: True,
        later=(KafkaException, TimeoutError),
        every=PAUSE_SECONDS,
    )
    print(f"{len(created)} topics created, {len(wanted) - len(created)} were there", flush=True)
    for line in make_safe(settings.kafka, wanted):
        print(f"set right: {line}", flush=True)
    return drift(settings.kafka, wanted)


def prove(settings: OpeningSettings) -> None:
    """Where there is a second site: write whether this one may take commands. Raises what the broker does."""
    if not settings.peer or SITES not in settings.profiles.split(","):
        return
    standing = prove_role(Address(settings.site, settings.kafka), Address(settings.peer, settings.peer_kafka))
    print(f"{settings.site} is {standing}", flush=True)


def main() -> int:
    """The process's exit code."""
    settings = OpeningSettings()  # type: ignore[call-arg] # from the environment
    try:
        differences = open_site(settings)
        prove(settings)
    except (KafkaException, TimeoutError, Unsafe) as reason:
        print(f"topics: {reason}", file=sys.stderr)
        return 1
    for difference in differences:
        print(f"topics: {difference}", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
