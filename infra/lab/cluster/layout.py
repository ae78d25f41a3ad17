"""Who leads and who follows, as the cluster tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

ASK_SECONDS = 10.0


@dataclass(frozen=True)
class Replicas:
    """One partition: `leader` is -1 where there is none; the first of `all` is the preferred leader."""

    leader: int
    all: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Every partition, internal topics included, by (topic, partition)."""

    partitions: Mapping[tuple[str, int], Replicas]

    def behind(self) -> list[tuple[str, int]]:
        """Partitions with a replica that is not in sync, or without a leader."""
        return [
            place for place, at in self.partitions.items() if at.leader < 0 or set(at.all) != set(at.in_sync)
        ]

    def leaders(self) -> Counter[int]:
        """How many partitions each broker leads."""
        return Counter(at.leader for at in self.partitions.values())

    def astray(self) -> list[tuple[str, int]]:
        """Partitions that another replica than the preferred one leads."""
        return [place for place, at in self.partitions.items() if at.leader != at.all[0]]


def read_layout(admin: AdminClient) -> Layout:
    """Raises KafkaException where no broker answers."""
    found = admin.list_topics(timeout=ASK_SECONDS).topics
    return Layout(
        {
            (topic, number): Replicas(at.leader, tuple(at.replicas), tuple(at.isrs))
            for topic, described in found.items()
            for number, at in described.partitions.items()
        }
    )
