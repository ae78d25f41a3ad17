"""What an operator does to partitions: make topics with chosen replicas, elect leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from infra.cluster.layout import Layout, read_layout

SECONDS = 60.0
DURABLE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def create_placed(
    admin: AdminClient, name: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str] = DURABLE
) -> None:
    """A topic whose partitions stand on these brokers, the preferred leader first. Raises KafkaException."""
    new = NewTopic(name, replica_assignment=[list(each) for each in replicas], config=dict(config))
    for future in admin.create_topics([new]).values():
        future.result(SECONDS)


def delete_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Raises KafkaException."""
    for future in admin.delete_topics(list(names)).values():
        future.result(SECONDS)


def elect_preferred(admin: AdminClient) -> Layout:
    """Hand every partition that is led astray back to its preferred leader; the layout afterwards."""
    astray = read_layout(admin).astray()
    if astray:
        _elect(admin, ElectionType.PREFERRED, astray)
    return read_layout(admin)


def elect_unclean(admin: AdminClient, topic: str, partition: int) -> None:
    """Let a replica lead that is not in sync: what it does not have is lost."""
    _elect(admin, ElectionType.UNCLEAN, [(topic, partition)])


def _elect(admin: AdminClient, kind: ElectionType, places: Sequence[tuple[str, int]]) -> None:
    admin.elect_leaders(kind, [TopicPartition(*place) for place in places], request_timeout=SECONDS).result(
        SECONDS
    )
