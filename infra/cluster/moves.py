"""What an operator does to partitions: make topics with chosen replicas, elect leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AdminClient, NewTopic

from infra.cluster.kafka_tool import run_tool

SECONDS = 60.0
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
DURABLE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def create_placed(
    admin: AdminClient, name: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str] = DURABLE
) -> None:
    """A topic whose partitions stand on these brokers, the preferred leader first. Raises KafkaException."""
    placed = [list(each) for each in replicas]
    new = NewTopic(name, len(placed), replica_assignment=placed, config=dict(config))
    for future in admin.create_topics([new]).values():
        future.result(SECONDS)


def delete_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Raises KafkaException."""
    for future in admin.delete_topics(list(names)).values():
        future.result(SECONDS)


def elect_preferred(bootstrap: str) -> None:
    """Hand every partition that is led astray back to its preferred leader. Raises ToolFailed."""
    _elect(bootstrap, "preferred", "--all-topic-partitions")


def elect_unclean(bootstrap: str, topic: str, partition: int) -> None:
    """Let a replica lead that is not in sync: what it does not have is lost. Raises ToolFailed."""
    _elect(bootstrap, "unclean", "--topic", topic, "--partition", str(partition))


def _elect(bootstrap: str, kind: str, *which: str) -> None:
    """By Kafka's own program: confluent-kafka 2.16 cannot pass `elect_leaders` its time-outs."""
    run_tool(ELECTION, "--bootstrap-server", bootstrap, "--election-type", kind, *which)
