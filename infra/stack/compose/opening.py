"""Before any service of a site asks: the topics of the catalogue, and the site's first records.

`python -m infra.stack.compose.opening`, once per start. Exit code 1 where the broker's topics are not as wanted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from confluent_kafka import KafkaException
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from infra.log.topic_safety import Unsafe, make_safe
from infra.log.topics import Topic, catalogue, create_topics, drift, ensure_site

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.5
Count = Annotated[int, Field(ge=1)]


class OpeningSettings(BaseSettings):
    """Environment variables: DAYBOOK_ before KAFKA, SITE, REPLICAS and IN_SYNC.

    `replicas` of every partition, of which `in_sync` must have a record before it counts as written.
    """

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    kafka: str
    site: str = "home"
    replicas: Count = 1
    in_sync: Count = 1


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
    wanted, until = wanted_topics(settings), time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            created = create_topics(settings.kafka, wanted)
            ensure_site(settings.kafka, settings.site)
        except (KafkaException, TimeoutError):
            # A young broker names itself leader of a partition before it is; both steps may be repeated.
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            print(f"{len(created)} topics created, {len(wanted) - len(created)} were there", flush=True)
            for line in make_safe(settings.kafka, wanted):
                print(f"set right: {line}", flush=True)
            return drift(settings.kafka, wanted)


def main() -> int:
    """The process's exit code."""
    try:
        differences = open_site(OpeningSettings())  # type: ignore[call-arg] # from the environment
    except (KafkaException, TimeoutError, Unsafe) as reason:
        print(f"topics: {reason}", file=sys.stderr)
        return 1
    for difference in differences:
        print(f"topics: {difference}", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
