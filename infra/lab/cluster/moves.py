"""What an operator does to partitions: make topics with chosen replicas, elect leaders."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic

from infra.base.waiting import wait_until
from infra.lab.cluster.kafka_tool import ToolFailed, run_tool
from services.kernel.log import clients

SECONDS = 60.0
REASSIGN_SECONDS = 300.0
ATTEMPTS = 3
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
DURABLE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def create_placed(
    admin: AdminClient, name: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str] = DURABLE
) -> None:
    """A topic whose partitions stand on these brokers, preferred leader first; every broker knows it then.

    Raises KafkaException, TimeoutError.
    """
    placed = [list(each) for each in replicas]
    new = NewTopic(name, len(placed), replica_assignment=placed, config=dict(config))
    for future in admin.create_topics([new]).values():
        future.result(SECONDS)
    for broker in admin.list_topics(timeout=SECONDS).brokers.values():
        address = f"{broker.host}:{broker.port}"
        wait_until(partial(_known, address, name), f"broker {broker.id} knows {name}", SECONDS)


def _known(address: str, name: str) -> bool:
    """Whether the broker at `address` knows a topic and its leaders: a new client has no other to ask."""
    found = clients.admin(address).list_topics(name, timeout=SECONDS).topics[name]
    return found.error is None and all(each.leader >= 0 for each in found.partitions.values())


def reassign(bootstrap: str, plan: Mapping[tuple[str, int], Sequence[int]], folder: Path) -> float:
    """Move partitions to these brokers, the preferred leader first, and wait until all replicas are there.

    Answers the seconds it took; `folder` keeps the plan. Raises ToolFailed, TimeoutError.
    """
    moves = [
        {"topic": topic, "partition": number, "replicas": list(brokers)}
        for (topic, number), brokers in plan.items()
    ]
    file = folder / "reassignment.json"
    file.write_bytes(msgspec.json.encode({"version": 1, "partitions": moves}))
    began = time.monotonic()
    given = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(file))
    run_tool(REASSIGN, *given, "--execute")
    while "still in progress" in run_tool(REASSIGN, *given, "--verify"):
        if time.monotonic() > began + REASSIGN_SECONDS:
            raise TimeoutError(f"partitions are still moving after {REASSIGN_SECONDS:.0f} s")
    return time.monotonic() - began


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
    """By Kafka's own program: confluent-kafka 2.16 cannot pass `elect_leaders` its time-outs.

    Asked again where no broker answered in time, as happens while one comes back.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            run_tool(ELECTION, "--bootstrap-server", bootstrap, "--election-type", kind, *which)
            return
        except ToolFailed as error:
            if attempt == ATTEMPTS or "TimeoutException" not in str(error):
                raise
