"""The nodes of a cluster as child processes: brokers in racks, and controllers in processes of their own."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from contracts.kafka_address import secured
from infra.base.errors import NotReady
from infra.base.ports import HOST, listening
from infra.base.settings import CLUSTER_ID, ROOT, StackSettings
from infra.identity.authority import BROKER, Authority
from infra.log.rights import ADMIN
from infra.stack.embedded.child import Program, Server
from infra.stack.embedded.kafka import BROKER_LOGGERS, kafka_environment, kafka_java, members_seen
from infra.stack.security import (
    INTERNAL,
    ListenerPorts,
    apply_security,
    authority_of,
    prepare_identities,
    security_properties,
)
from infra.stack.storage import no_room_to_start

FORMAT_SECONDS, NODE_SECONDS = 300.0, 240.0
FIRST_CONTROLLER = 10  # of a site: its brokers are 0, 1 and 2
# The nodes in containers have these settings too.
SETTINGS = ROOT / "infra" / "kafka" / "replicated.properties"


@dataclass(frozen=True)
class Node:
    """A broker in a rack, or a controller. `own` are settings of this node alone, which override all others.

    `peer_port` is a broker's second listener, for the other site; it advertises `link_port` to its clients.
    """

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
    peer_port: int | None = None
    link_port: int | None = None
    internal_port: int | None = None
    authority: Authority | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def own_address(self) -> str:
        """For whoever starts it: the cluster may have no users yet."""
        if self.authority is None:
            return self.address
        return secured(f"{HOST}:{self.internal_port}", self.authority.identity(BROKER))

    def properties(self) -> dict[str, str]:
        """The content of its settings file."""
        lines = [line for line in SETTINGS.read_text().splitlines() if line and not line.startswith("#")]
        shared = {name: value for name, _, value in (line.partition("=") for line in lines)}
        location = {
            "process.roles": self.role,
            "controller.listener.names": "CONTROLLER",
            "node.id": str(self.id),
            "controller.quorum.bootstrap.servers": self.controllers,
            "log.dirs": str(self.folder.absolute() / "logs"),
        }
        broker = self.role == "broker"
        if broker:
            ports = ListenerPorts(self.port, self.internal_port, self.peer_port, self.link_port)
            listeners, advertised = ports.settings(secured=self.authority is not None)
            role = {"broker.rack": self.rack, "listeners": listeners, "advertised.listeners": advertised}
        else:
            role = {"listeners": f"CONTROLLER://{self.address}"}
        security = security_properties(self.authority, broker=broker)
        return {**shared, **location, **role, **security, **self.own}

    def prepare(self) -> Program:
        """Write its settings, format its storage once, and return the program to run.

        Raises NotReady, also where the disk is nearly full: a broker would empty its own log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if reason := no_room_to_start([self.folder]):
            raise NotReady(reason)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        java = kafka_java(self.folder, self.heap_megabytes, "-Xms96m", loggers=(*BROKER_LOGGERS, "kafka.log"))
        if not (self.folder / "logs" / "meta.properties").exists():
            self._format(java, properties)
        return Program(self.name, (*java, "kafka.Kafka", str(properties.absolute())), kafka_environment())

    def ready(self) -> bool:
        """Whether it accepts connections and, as a broker, is a member of the cluster."""
        return (
            listening(self.port) if self.role == "controller" else self.id in members_seen(self.own_address)
        )

    def _format(self, java: list[str], properties: Path) -> None:
        quorum = f"--initial-controllers={self.voters}" if self.voters else "--no-initial-controllers"
        command = [*java, "kafka.tools.StorageTool", "format", quorum]
        # Code that compiles fast halves the seconds that it lives.
        command.insert(1, "-XX:TieredStopAtLevel=1")
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


def kept_cluster_id(folder: Path) -> str:
    """The cluster's id, made at the first call. A site with this file is a cluster."""
    file = folder / CLUSTER_ID
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(_in_base64(uuid.uuid4()))
    return file.read_text()


def first_voters(cluster_id: str, addresses: Mapping[int, str]) -> str:
    """The first quorum, as `number@address:directory`; every controller is formatted with the same."""
    of_cluster = uuid.UUID(bytes=base64.urlsafe_b64decode(cluster_id + "=="))
    directories = {number: _in_base64(uuid.uuid5(of_cluster, str(number))) for number in addresses}
    return ",".join(f"{number}@{addresses[number]}:{own}" for number, own in directories.items())


def _in_base64(number: uuid.UUID) -> str:
    """As Kafka writes its ids."""
    return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")


def site_nodes(settings: StackSettings, *, linked: bool) -> tuple[list[Node], list[Node]]:
    """The controllers and the brokers of a site that is a cluster. The other site reaches `linked` brokers."""
    home, cluster_id, authority = settings.home, kept_cluster_id(settings.home), authority_of(settings)
    names = dict(enumerate(settings.nodes("controller"), start=FIRST_CONTROLLER))
    addresses = {number: f"{HOST}:{settings.port(name)}" for number, name in names.items()}
    shared = ",".join(addresses.values()), cluster_id
    voters = first_voters(cluster_id, addresses)
    controllers = [
        Node(
            number,
            "controller",
            home / name,
            settings.port(name),
            *shared,
            voters,
            heap_megabytes=128,
            authority=authority,
        )
        for number, name in names.items()
    ]
    ways = list(zip(settings.nodes("peer"), settings.nodes("link"), strict=True))
    brokers = [
        Node(
            number,
            "broker",
            home / name,
            settings.port(name),
            *shared,
            rack=f"rack-{number}",
            peer_port=settings.port(ways[number][0]) if linked else None,
            link_port=settings.port(ways[number][1]) if linked else None,
            internal_port=settings.port(internal),
            authority=authority,
        )
        for number, (name, internal) in enumerate(
            zip(settings.nodes("broker"), settings.nodes(INTERNAL), strict=True)
        )
    ]
    return controllers, brokers


class NodeServer(Server):
    """A node that the caller starts and stops."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.name, node.folder, NODE_SECONDS)
        self._node = node

    def _program(self) -> Program:
        return self._node.prepare()

    def ready(self) -> bool:
        return self._node.ready()

    def stop(self) -> None:
        with suppress(NotReady):  # another node's start has failed before this one's
            super().stop()


@contextmanager
def cluster_alone(settings: StackSettings) -> Iterator[str]:
    """The addresses of a site's brokers, which run with their controllers until the end of the block."""
    prepare_identities(settings)
    rows = [[NodeServer(node) for node in row] for row in site_nodes(settings, linked=False)]
    with ThreadPoolExecutor(sum(map(len, rows))) as pool:
        try:
            for row in rows:
                list(pool.map(NodeServer.start, row))
            apply_security(settings)
            yield settings.kafka_as(ADMIN)
        finally:
            for row in reversed(rows):
                list(pool.map(NodeServer.stop, row))
