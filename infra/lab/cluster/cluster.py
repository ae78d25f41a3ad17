"""Three brokers in three racks and a controller apart, as child processes on loopback."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.base.errors import NotReady
from infra.base.ports import HOST, require_free
from infra.base.waiting import wait_until
from infra.lab.cluster.layout import Layout, read_layout
from infra.lab.cluster.node import Node, prepare_node
from infra.lab.cluster.replicated import create_replicated, require_durable
from infra.stack.embedded.child import POLL_SECONDS, Child
from services.kernel.log import clients

BROKERS = (1, 2, 3)
CONTROLLER = 100
# Distances from the base of the ports.
CONTROLLER_PORT, BROKER_PORTS = 50, 50
READY_SECONDS = 180.0


class Cluster:
    """The nodes of one cluster, each under its number: `start` all, `kill`, `stop` and `restart` any.

    `start` returns when what the cluster promises was read back from it. A node's state stays in its folder.
    """

    def __init__(self, folder: Path, port_base: int) -> None:
        self.folder = folder
        self._base = port_base
        self._children: dict[int, Child] = {}
        self.controller_address = f"{HOST}:{port_base + CONTROLLER_PORT}"
        self._cluster_id = self._kept_cluster_id()
        self.nodes = {CONTROLLER: self._node(CONTROLLER)} | {each: self._node(each) for each in BROKERS}

    @property
    def bootstrap(self) -> str:
        """The first three brokers: clients find the others by themselves."""
        return ",".join(self.nodes[each].address for each in BROKERS)

    @property
    def admin(self) -> AdminClient:
        return clients.admin(self.bootstrap, {"log_level": 0})

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
        """Every node, the topics of the catalogue, and the proof of their settings.

        Raises NotReady where a node does not come up, NotDurable where a setting is not what it should be,
        PortTaken.
        """
        for node in self.nodes.values():
            require_free(node.port, node.name, "DAYBOOK_PORT_BASE")
        for number in self.nodes:
            self._launch(number)
        self.await_members(BROKERS)
        create_replicated(self.bootstrap)
        require_durable(self.bootstrap, self.controller_address, self.folder)

    def end(self) -> None:
        """Kill what runs: a drill's cluster is thrown away."""
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
            self.nodes[number] = replace(self.nodes[number], own=own)
        self._launch(number)

    def add(self, number: int, rack: str) -> None:
        """A broker that the cluster did not have; returns when it is a member."""
        node = replace(self._node(number), rack=rack)
        require_free(node.port, node.name, "DAYBOOK_PORT_BASE")
        self.nodes[number] = node
        self._launch(number)
        self.await_members([*BROKERS, number])

    def remove(self, number: int) -> None:
        """Stop a broker for good; no partition may have a replica on it. Raises NotReady where one has."""
        left = [place for place, at in self.layout().partitions.items() if number in at.all]
        if left:
            raise NotReady(f"broker {number} still has replicas, of {left[0]} for one")
        self.stop(number)
        del self.nodes[number], self._children[number]

    def pid(self, number: int) -> int:
        """The process of a node."""
        return self._children[number].pid

    def layout(self) -> Layout:
        """Leaders and replicas as the cluster tells them now."""
        return read_layout(self.admin)

    def await_members(self, numbers: tuple[int, ...] | list[int]) -> None:
        """Wait until these brokers are members. Raises NotReady, with the end of a dead node's log."""

        def all_there() -> bool:
            try:
                return set(numbers) <= set(self.admin.list_topics(timeout=5).brokers)
            except KafkaException:
                return False

        self._wait(all_there, f"brokers {sorted(numbers)} are members")

    def await_in_sync(self, seconds: float = READY_SECONDS) -> float:
        """Wait until every replica is in sync again; after how many seconds. Raises NotReady."""
        began = time.monotonic()
        self._wait(lambda: not self.layout().behind(), "all replicas are in sync", seconds)
        return time.monotonic() - began

    def _wait(self, done: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        def done_by_living_nodes() -> bool:
            if done():
                return True
            for number, child in self._children.items():
                if child.exit_code is not None and child.exit_code > 0:
                    name = self.nodes[number].name
                    raise NotReady(f"{name} ended with {child.exit_code}:\n{child.last_lines()}")
            return False

        wait_until(done_by_living_nodes, what, seconds, every=POLL_SECONDS * 4, error=NotReady)

    def _launch(self, number: int) -> None:
        node = self.nodes[number]
        self._children[number] = Child(prepare_node(node), node.folder / "node.log")

    def _node(self, number: int) -> Node:
        controller = number == CONTROLLER
        return Node(
            number,
            "controller" if controller else "broker",
            self.folder / ("controller" if controller else f"broker-{number}"),
            self._base + (CONTROLLER_PORT if controller else BROKER_PORTS + number),
            self.controller_address,
            self._cluster_id,
            rack="" if controller else f"rack-{number}",
        )

    def _kept_cluster_id(self) -> str:
        file = self.folder / "cluster-id"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return file.read_text()
