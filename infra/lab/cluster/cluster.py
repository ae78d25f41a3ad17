"""Three brokers in three racks and three separate controllers, as child processes on loopback."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from contracts.kafka_address import secured
from infra.base.errors import NotReady
from infra.base.ports import HOST, require_free
from infra.base.waiting import wait_until
from infra.identity.authority import BROKER, Authority
from infra.lab.cluster.administration import (
    UNREGISTER,
    Layout,
    create_replicated,
    elect_preferred,
    read_layout,
    read_quorum,
    require_durable,
    run_tool,
)
from infra.stack.embedded.child import POLL_SECONDS, Child
from infra.stack.embedded.kafka import Node, first_voters, kept_cluster_id
from services.kernel.log import clients

BROKERS, CONTROLLERS = (1, 2, 3), (11, 12, 13)
# Distances of a node's port, and of a broker's listener for brokers, from the base of the ports, without its number.
PORTS, INTERNAL_PORTS = 50, 70
READY_SECONDS = 180.0

_BROKER = {
    # Drills decide when leadership returns to the preferred leader.
    "auto.leader.rebalance.enable": "false",
    # Retention and compaction run every few seconds, so that a drill can observe them.
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
}


class Cluster:
    """The nodes of one cluster, by number. A node's state stays in its folder.

    `bootstrap` and `controllers` are the addresses for whoever has the brokers' certificate, by `authority`, and so may
    do everything; the shop's users connect to `for_users`.
    """

    def __init__(self, folder: Path, port_base: int, authority: Authority) -> None:
        self.folder, self._base, self._authority = folder, port_base, authority
        self._children: dict[int, Child] = {}
        self._cluster_id = kept_cluster_id(folder)
        self.nodes = {number: self._node(number) for number in (*CONTROLLERS, *BROKERS)}

    @property
    def bootstrap(self) -> str:
        """The first three brokers: clients find the others by themselves."""
        return self._certified(BROKERS, INTERNAL_PORTS)

    @property
    def controllers(self) -> str:
        """The controllers, for Kafka's own programs."""
        return self._certified(CONTROLLERS, PORTS)

    @property
    def for_users(self) -> str:
        """`host:port` of each of the first three brokers, separated by commas."""
        return self._addresses(BROKERS, PORTS)

    @property
    def admin(self) -> AdminClient:
        return clients.admin(self.bootstrap)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start every node, create the topics of the catalogue, and prove that their settings are in force.

        Raises NotReady where a node does not start, NotDurable where a setting is wrong, PortTaken.
        """
        for node in self.nodes.values():
            require_free(node.port, node.name, "DAYBOOK_PORT_BASE")
        for number in self.nodes:
            self.launch(number)
        self.await_members(BROKERS)
        create_replicated(self.bootstrap)
        require_durable(self.bootstrap, self.controllers, self.folder)

    def end(self) -> None:
        """Kill what runs: a drill's cluster is not used again."""
        for child in self._children.values():
            child.kill()

    def kill(self, number: int) -> None:
        """End a node at once, as a crash would."""
        self._children[number].kill()

    def stop(self, number: int) -> None:
        """Stop a node cleanly: a broker hands its leaderships over first."""
        self._children[number].stop()

    def launch(self, number: int, own: Mapping[str, str] | None = None) -> None:
        """Start a node that is down, with other settings of its own where given; returns at once."""
        if own is not None:
            self.nodes[number] = replace(self.nodes[number], own={**_own(number), **own})
        node = self.nodes[number]
        self._children[number] = Child(node.prepare(), node.folder / "node.log")

    def restart(self, number: int, own: Mapping[str, str] | None = None) -> None:
        """Restart a node with these settings of its own, and let a broker lead again what it led. Raises NotReady."""
        self.stop(number)
        self.launch(number, own)
        if number in CONTROLLERS:
            self.await_quorum()
            return
        self.await_members([number])
        self.await_in_sync()
        elect_preferred(self.bootstrap)

    def lose_disk(self, number: int) -> None:
        """Remove the records and metadata of a broker that is down: it comes back with an empty disk."""
        shutil.rmtree(self.nodes[number].folder / "logs")

    def add(self, number: int, rack: str) -> None:
        """Start a new broker; returns when it is a member."""
        node = replace(self._node(number), rack=rack)
        require_free(node.port, node.name, "DAYBOOK_PORT_BASE")
        self.nodes[number] = node
        self.launch(number)
        self.await_members([*BROKERS, number])

    def remove(self, number: int) -> None:
        """Stop a broker for good, and have the controllers forget it: as long as they know it, they wait for it at an
        upgrade. No partition may have a replica on it. Raises NotReady where one has, and ToolFailed."""
        partitions = self.layout().partitions
        left = [partition for partition, replicas in partitions.items() if number in replicas.all]
        if left:
            raise NotReady(f"broker {number} still has replicas, of {left[0]} for one")
        self.stop(number)
        run_tool(UNREGISTER, self.bootstrap, "--id", str(number))
        del self.nodes[number], self._children[number]

    def pid(self, number: int) -> int:
        """The process of a node."""
        return self._children[number].pid

    def layout(self) -> Layout:
        """The leaders and replicas as they are now."""
        return read_layout(self.admin)

    def await_members(self, numbers: Sequence[int]) -> None:
        """Wait until these brokers are members. Raises NotReady, with the end of a dead node's log."""
        self._wait(
            lambda: set(numbers) <= set(self.admin.list_topics(timeout=5).brokers),
            f"brokers {sorted(numbers)} are members",
        )

    def await_in_sync(self) -> None:
        """Wait until every broker says that every replica is in sync again: one that has just returned may still say
        what was true before. Raises NotReady."""
        brokers = [node.own_address for number, node in self.nodes.items() if number not in CONTROLLERS]
        self._wait(lambda: not any(map(_is_behind, brokers)), "all replicas are in sync")

    def await_quorum(self) -> None:
        """Wait until a controller leads and the others follow. Raises NotReady."""
        self._wait(lambda: read_quorum(self.controllers).complete, "all controllers follow")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        def done_by_living_nodes() -> bool:
            try:
                if done():
                    return True
            except KafkaException:
                pass  # a broker does not respond yet
            for number, child in self._children.items():
                if child.exit_code is not None and child.exit_code > 0:
                    name = self.nodes[number].name
                    raise NotReady(f"{name} ended with {child.exit_code}:\n{child.last_lines()}")
            return False

        wait_until(done_by_living_nodes, what, READY_SECONDS, every=POLL_SECONDS * 4, error=NotReady)

    def _node(self, number: int) -> Node:
        port, quorum = self._base + PORTS + number, (self._addresses(CONTROLLERS, PORTS), self._cluster_id)
        if number in CONTROLLERS:
            folder = self.folder / f"controller-{number}"
            addresses = {controller: self._addresses([controller], PORTS) for controller in CONTROLLERS}
            voters = first_voters(self._cluster_id, addresses)
            node = Node(number, "controller", folder, port, *quorum, voters, heap_megabytes=128)
        else:
            folder, internal = self.folder / f"broker-{number}", self._base + INTERNAL_PORTS + number
            node = Node(number, "broker", folder, port, *quorum, internal_port=internal, own=_own(number))
        return replace(node, authority=self._authority, rack=f"rack-{number}")

    def _addresses(self, numbers: Sequence[int], ports: int) -> str:
        return ",".join(f"{HOST}:{self._base + ports + number}" for number in numbers)

    def _certified(self, numbers: Sequence[int], ports: int) -> str:
        return secured(self._addresses(numbers, ports), self._authority.identity(BROKER))


def _own(number: int) -> Mapping[str, str]:
    return {} if number in CONTROLLERS else _BROKER


def _is_behind(broker: str) -> bool:
    """What this broker says of the replicas: a new client has asked no other one yet."""
    return bool(read_layout(clients.admin(broker)).behind())


def timed(step: Callable[[], object]) -> float:
    """The seconds that a step takes."""
    began = time.monotonic()
    step()
    return time.monotonic() - began
