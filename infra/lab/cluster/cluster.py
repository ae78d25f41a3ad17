"""Three brokers in three racks and three separate controllers, as child processes on loopback."""

from __future__ import annotations

import base64
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.base.errors import NotReady
from infra.base.ports import HOST, require_free
from infra.base.settings import ROOT
from infra.base.waiting import wait_until
from infra.lab.cluster.administration import (
    Layout,
    create_replicated,
    elect_preferred,
    read_layout,
    read_quorum,
    require_durable,
)
from infra.stack.embedded.child import POLL_SECONDS, Child, Program
from infra.stack.embedded.kafka import kafka_environment, kafka_java
from services.kernel.log import clients

BROKERS, CONTROLLERS = (1, 2, 3), (11, 12, 13)
PORTS = 50  # distance of a node's port from the base of the ports, without the node's number
READY_SECONDS, FORMAT_SECONDS = 180.0, 300.0
# The nodes in containers have these settings too.
SETTINGS = ROOT / "infra" / "kafka" / "replicated.properties"

_EVERY_NODE = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}

_BROKER = {
    # Drills decide when leadership returns to the preferred leader.
    "auto.leader.rebalance.enable": "false",
    # Retention and compaction run every few seconds, so that a drill can observe them.
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
}


@dataclass(frozen=True)
class Node:
    """A broker in a rack, or a controller. `own` are settings of this node alone, which override all others."""

    id: int
    role: Literal["broker", "controller"]
    folder: Path
    port: int
    controllers: str
    cluster_id: str
    voters: str = ""
    rack: str = ""
    heap_megabytes: int = 320
    own: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.role}-{self.id}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def properties(self) -> dict[str, str]:
        """The content of its settings file."""
        lines = [line for line in SETTINGS.read_text().splitlines() if line and not line.startswith("#")]
        shared = {name: value for name, _, value in (line.partition("=") for line in lines)}
        location = {
            "process.roles": self.role,
            "node.id": str(self.id),
            "controller.quorum.bootstrap.servers": self.controllers,
            "log.dirs": str(self.folder.absolute() / "logs"),
        }
        if self.role == "controller":
            role = {"listeners": f"CONTROLLER://{self.address}"}
        else:
            listener = f"PLAINTEXT://{self.address}"
            role = {
                **_BROKER,
                "broker.rack": self.rack,
                "listeners": listener,
                "advertised.listeners": listener,
            }
        return {**shared, **_EVERY_NODE, **location, **role, **self.own}

    def prepare(self) -> Program:
        """Write its settings, format its storage once, and return the program to run. Raises NotReady."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        java = kafka_java(self.folder, self.heap_megabytes, "-Xms96m", loggers=("kafka.server", "kafka.log"))
        if not (self.folder / "logs" / "meta.properties").exists():
            self._format(java, properties)
        return Program(self.name, (*java, "kafka.Kafka", str(properties.absolute())), kafka_environment())

    def _format(self, java: list[str], properties: Path) -> None:
        quorum = f"--initial-controllers={self.voters}" if self.voters else "--no-initial-controllers"
        command = [*java, "kafka.tools.StorageTool", "format", quorum]
        command.insert(
            1, "-XX:TieredStopAtLevel=1"
        )  # code that compiles fast halves the seconds that it lives
        command += [f"--cluster-id={self.cluster_id}", "-c", str(properties)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=FORMAT_SECONDS
            )
        except subprocess.TimeoutExpired as slow:
            raise NotReady(
                f"formatting the storage of {self.name} took over {FORMAT_SECONDS:.0f} s"
            ) from slow
        if done.returncode:
            output = (done.stdout + done.stderr).strip()[-2000:]
            raise NotReady(f"formatting the storage of {self.name} failed:\n{output}")


class Cluster:
    """The nodes of one cluster, by number. A node's state stays in its folder."""

    def __init__(self, folder: Path, port_base: int) -> None:
        self.folder = folder
        self._base = port_base
        self._children: dict[int, Child] = {}
        self._cluster_id = self._kept_cluster_id()
        self.nodes = {number: self._node(number) for number in (*CONTROLLERS, *BROKERS)}

    @property
    def bootstrap(self) -> str:
        """The first three brokers: clients find the others by themselves."""
        return ",".join(self.nodes[number].address for number in BROKERS)

    @property
    def controllers(self) -> str:
        """The addresses of the controllers, for the nodes and for Kafka's own programs."""
        return ",".join(self._address(number) for number in CONTROLLERS)

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
            self.nodes[number] = replace(self.nodes[number], own=own)
        node = self.nodes[number]
        self._children[number] = Child(node.prepare(), node.folder / "node.log")

    def restart(self, number: int, own: Mapping[str, str] | None = None) -> None:
        """Restart a broker with these settings of its own, and let it lead again what it led. Raises NotReady."""
        self.stop(number)
        self.launch(number, own)
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
        """Stop a broker for good; no partition may have a replica on it. Raises NotReady where one has."""
        partitions = self.layout().partitions
        left = [partition for partition, replicas in partitions.items() if number in replicas.all]
        if left:
            raise NotReady(f"broker {number} still has replicas, of {left[0]} for one")
        self.stop(number)
        del self.nodes[number], self._children[number]

    def pid(self, number: int) -> int:
        """The process of a node."""
        return self._children[number].pid

    def layout(self) -> Layout:
        """The leaders and replicas as they are now."""
        return read_layout(self.admin)

    def await_members(self, numbers: Sequence[int]) -> None:
        """Wait until these brokers are members. Raises NotReady, with the end of a dead node's log."""

        def all_there() -> bool:
            try:
                return set(numbers) <= set(self.admin.list_topics(timeout=5).brokers)
            except KafkaException:
                return False

        self._wait(all_there, f"brokers {sorted(numbers)} are members")

    def await_in_sync(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every replica is in sync again. Raises NotReady."""
        self._wait(lambda: not self.layout().behind(), "all replicas are in sync", seconds)

    def await_quorum(self, seconds: float = READY_SECONDS) -> None:
        """Wait until a controller leads and the others follow. Raises NotReady."""
        self._wait(lambda: read_quorum(self.controllers).complete, "all controllers follow", seconds)

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

    def _node(self, number: int) -> Node:
        port, quorum = self._base + PORTS + number, (self.controllers, self._cluster_id)
        if number in CONTROLLERS:
            folder = self.folder / f"controller-{number}"
            return Node(number, "controller", folder, port, *quorum, self._voters(), heap_megabytes=128)
        return Node(number, "broker", self.folder / f"broker-{number}", port, *quorum, rack=f"rack-{number}")

    def _address(self, number: int) -> str:
        return f"{HOST}:{self._base + PORTS + number}"

    def _voters(self) -> str:
        """The first quorum, as `number@address:directory`; every controller is formatted with the same."""
        of_cluster = uuid.UUID(bytes=base64.urlsafe_b64decode(self._cluster_id + "=="))
        directories = {number: _in_base64(uuid.uuid5(of_cluster, str(number))) for number in CONTROLLERS}
        return ",".join(f"{number}@{self._address(number)}:{own}" for number, own in directories.items())

    def _kept_cluster_id(self) -> str:
        file = self.folder / "cluster-id"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(_in_base64(uuid.uuid4()))
        return file.read_text()


def _in_base64(number: uuid.UUID) -> str:
    """As Kafka writes its ids."""
    return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")


def timed(step: Callable[[], object]) -> float:
    """The seconds that a step takes."""
    began = time.monotonic()
    step()
    return time.monotonic() - began
