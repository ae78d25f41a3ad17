"""Kafka as child processes: the nodes of a site (one broker, or brokers in racks and controllers), and MirrorMaker2."""

import base64
import os
import subprocess
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import KafkaException

from contracts.kafka_address import bootstrap_of, secured
from infra.base.errors import NotReady
from infra.base.ports import HOST, listening
from infra.base.settings import CLUSTER_ID, ROOT, StackSettings
from infra.identity.authority import BROKER, Authority
from infra.log.rights import ADMIN
from infra.stack.embedded.child import Child, Program
from infra.stack.embedded.java import class_archive, classpath, find_java, jars_folder
from infra.stack.mirror_settings import FRESH_SECONDS, MirrorPlace, canary_age, mirror_properties
from infra.stack.security import (
    INTERNAL,
    apply_security,
    authority_of,
    prepare_identities,
    security_properties,
)
from infra.stack.storage import no_room_to_start
from services.kernel.log import clients

FORMAT_SECONDS, NODE_SECONDS = 300.0, 240.0
MIRROR_MEGABYTES = 256
NODE, MIRROR = "node", "mirror"
FIRST_CONTROLLER = 10  # of a site: its brokers are 0, 1 and 2
# `kafka.log`: how long a broker reads a log after a crash. What the authorizer denies is in the last one.
AUTHORIZER = "kafka.authorizer.logger"
NODE_LOGGERS = ("kafka.server", "kafka.log", AUTHORIZER)
# Nodes in containers have the same settings: a lone broker, and the nodes of a cluster.
SETTINGS = ROOT / "infra" / "kafka" / "broker.properties"
REPLICATED = ROOT / "infra" / "kafka" / "replicated.properties"

_LOGGING = """\
Configuration:
  Appenders:
    Console: {{name: STDOUT, PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}}}
{appenders}
  Loggers:
    Root: {{level: WARN, AppenderRef: [{{ref: STDOUT, level: INFO}}]}}
    Logger:
{loggers}
"""


def kafka_java(
    folder: Path,
    heap_megabytes: int,
    *options: str,
    loggers: Sequence[str] = ("kafka.server",),
    decisions: Path | None = None,
    jars: str = "kafka",
    program: str = NODE,
) -> list[str]:
    """The Java command without the main class. Writes the log configuration, INFO for `loggers`, to `folder`.

    `decisions`: a file for everything that the authorizer allows and denies. `jars`: a set of `infra/jars.lock`.
    `program`: whose archive of classes it has.
    """
    logging = folder / "log4j2.yaml"
    lines = {name: f"      - {{name: {name}, level: INFO}}" for name in loggers}
    appenders = ""
    if decisions is not None:
        layout = 'PatternLayout: {pattern: "%m%n"}'
        appenders = f'    File: {{name: DECISIONS, fileName: "{decisions.absolute()}", {layout}}}'
        lines[AUTHORIZER] = f"      - {{name: {AUTHORIZER}, level: DEBUG, AppenderRef: [{{ref: DECISIONS}}]}}"
    logging.write_text(_LOGGING.format(appenders=appenders, loggers="\n".join(lines.values())))
    return [
        str(find_java().executable),
        f"-Dlog4j2.configurationFile={logging.absolute()}",
        *class_archive(program, jars_folder(jars)).options,
        f"-Xmx{heap_megabytes}m",
        *options,
        "-cp",
        classpath(jars),
    ]


def kafka_environment() -> dict[str, str]:
    """The environment without KAFKA_*, which Kafka's programs would read as settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}


@dataclass(frozen=True)
class Node:
    """A broker in a rack, a controller, or a lone broker, which is both. `own` are settings of this node alone, which
    override all others.

    `controllers` are the addresses of the quorum. `peer_port` is a broker's second listener, for the other site; it
    advertises `link_port` to its clients. With an `authority` the node is secured, and a broker has a listener for
    brokers, `internal_port`. `decisions`, `jars`: as of `kafka_java`.
    """

    id: int
    role: Literal["broker", "controller", "broker,controller"]
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
    decisions: Path | None = None
    jars: str = "kafka"

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def alone(self) -> bool:
        return self.role == "broker,controller"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def own_address(self) -> str:
        """For whoever starts it: there may be no users yet."""
        if self.authority is None:
            return self.address
        return secured(f"{HOST}:{self.internal_port}", self.authority.identity(BROKER))

    @property
    def ports(self) -> tuple[int, ...]:
        """Those that it listens on."""
        controller = int(self.controllers.rpartition(":")[2]) if self.alone else None
        ports = self.port, controller, self.peer_port, self.authority and self.internal_port
        return tuple(port for port in ports if port)

    def properties(self) -> dict[str, str]:
        """The content of its settings file."""
        lines = (SETTINGS if self.alone else REPLICATED).read_text().splitlines()
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        location = {
            "process.roles": self.role,
            "controller.listener.names": "CONTROLLER",
            "node.id": str(self.id),
            "controller.quorum.bootstrap.servers": self.controllers,
            "log.dirs": str(self.folder.absolute() / "logs"),
        }
        broker = self.role != "controller"
        if broker:
            listeners, advertised = self._listeners()
            role = {"listeners": listeners, "advertised.listeners": advertised}
        else:
            role = {"listeners": f"CONTROLLER://{self.address}"}
        if self.alone:
            role["listeners"] += f",CONTROLLER://{self.controllers}"
        elif broker:
            role["broker.rack"] = self.rack
        security = security_properties(self.authority, broker=broker)
        return {name: value for name, _, value in pairs} | location | role | security | dict(self.own)

    def prepare(self) -> Program:
        """Write its settings, format its storage once, and return the program to run.

        Raises NotReady, also where the disk is nearly full: a broker would empty its own log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if reason := no_room_to_start([self.folder]):
            raise NotReady(reason)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        logs: dict[str, Any] = {"loggers": NODE_LOGGERS, "decisions": self.decisions}
        java = kafka_java(self.folder, self.heap_megabytes, "-Xms96m", **logs, jars=self.jars)
        if not (self.folder / "logs" / "meta.properties").exists():
            self._format(java, properties)
        return Program(self.name, (*java, "kafka.Kafka", str(properties.absolute())), kafka_environment())

    def ready(self) -> bool:
        """Whether it accepts connections and, as a broker, is a member of the cluster."""
        return (
            listening(self.port) if self.role == "controller" else self.id in members_seen(self.own_address)
        )

    def _listeners(self) -> tuple[str, str]:
        """What a broker listens on, and what it advertises: for the site's own processes, brokers, the other site."""
        secured = self.authority is not None
        ports = [("CLIENTS" if secured else "PLAINTEXT", self.port, self.port)]
        if secured and self.internal_port:
            ports.append(("INTERNAL", self.internal_port, self.internal_port))
        if self.peer_port and self.link_port:
            ports.append(("PEER", self.peer_port, self.link_port))
        listeners = (f"{name}://{HOST}:{port}" for name, port, _ in ports)
        advertised = (f"{name}://{HOST}:{port}" for name, _, port in ports)
        return ",".join(listeners), ",".join(advertised)

    def _format(self, java: list[str], properties: Path) -> None:
        quorum = f"--initial-controllers={self.voters}" if self.voters else "--no-initial-controllers"
        if self.alone:
            quorum = "--standalone"
        command = [*java, "kafka.tools.StorageTool", "format", quorum]
        # Code that compiles fast halves the seconds that it lives.
        command.insert(1, "-XX:TieredStopAtLevel=1")
        command += [f"--cluster-id={self.cluster_id}", "-c", str(properties)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_SECONDS)
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


def lone_broker(
    folder: Path, port: int, controller_port: int, heap_megabytes: int = 384, **listeners: Any
) -> Node:
    """A broker that is its own controller: a log of one node. `listeners` as in `Node`."""
    quorum, cluster_id = f"{HOST}:{controller_port}", _in_base64(uuid.uuid4())
    whole = Node(1, "broker,controller", folder, port, quorum, cluster_id, heap_megabytes=heap_megabytes)
    return replace(whole, **listeners)


def site_nodes(settings: StackSettings, *, linked: bool) -> list[list[Node]]:
    """The nodes of a site in rows, in order of starting: its broker; or its controllers, then its brokers. The other
    site reaches `linked` brokers."""
    home, authority = settings.home, authority_of(settings)
    ways = list(zip(*map(settings.nodes, ("broker", "peer", "link", INTERNAL)), strict=True))
    listeners: list[dict[str, Any]] = [
        {
            "peer_port": settings.port(peer) if linked else None,
            "link_port": settings.port(link) if linked else None,
            "internal_port": settings.port(internal) if settings.secured else None,
            "authority": authority,
            "decisions": settings.authorizer_log,
        }
        for _, peer, link, internal in ways
    ]
    if settings.brokers == 1:
        ports = settings.port("broker"), settings.port("controller")
        return [[lone_broker(home / "broker", *ports, **listeners[0])]]
    cluster_id = kept_cluster_id(home)
    names = dict(enumerate(settings.nodes("controller"), start=FIRST_CONTROLLER))
    addresses = {number: f"{HOST}:{settings.port(name)}" for number, name in names.items()}
    shared = ",".join(addresses.values()), cluster_id
    voters = first_voters(cluster_id, addresses)
    small: dict[str, Any] = {"heap_megabytes": 128, "authority": authority}
    controllers = [
        Node(number, "controller", home / name, settings.port(name), *shared, voters, **small)
        for number, name in names.items()
    ]
    brokers = [
        Node(number, "broker", home / name, settings.port(name), *shared, rack=f"rack-{number}", **own)
        for number, ((name, *_), own) in enumerate(zip(ways, listeners, strict=True))
    ]
    return [controllers, brokers]


@contextmanager
def brokers_alone(settings: StackSettings) -> Iterator[str]:
    """The address of a site's brokers, which run with their controllers until the end of the block.

    Whoever starts them may do everything on them.
    """
    prepare_identities(settings)
    rows = site_nodes(settings, linked=False)
    running: list[list[Child]] = []
    with ThreadPoolExecutor(sum(map(len, rows))) as pool:
        try:
            for row in rows:
                running.append([])
                for node, program in zip(row, pool.map(lambda node: node.prepare(), row), strict=True):
                    running[-1].append(Child(program, node.folder / f"{node.name}.log"))
                list(pool.map(lambda node, own: own.wait_until(node.ready, NODE_SECONDS), row, running[-1]))
            apply_security(settings)
            yield settings.kafka_as(ADMIN)
        finally:
            for children in reversed(running):
                list(pool.map(Child.stop, children))


def members_seen(address: str) -> Collection[int]:
    """The numbers of the brokers that are members, as one of these brokers names them; none where it is silent."""
    if not any(listening(int(broker.rpartition(":")[2])) for broker in bootstrap_of(address).split(",")):
        return ()
    try:
        return frozenset(clients.admin(address).list_topics(timeout=5).brokers)
    except KafkaException:
        return ()


def prepare_mirror(mirror: MirrorPlace) -> Program:
    """Write the configuration and return what to run."""
    mirror.folder.mkdir(parents=True, exist_ok=True)
    properties = mirror.folder / "mirror.properties"
    properties.touch(mode=0o600)  # it contains a password
    properties.write_text(mirror_properties(mirror))
    # the proof of exactly-once is in this log: ExactlyOnceWorkerSourceTask
    loggers = ("org.apache.kafka.connect.runtime", "org.apache.kafka.connect.mirror")
    java = kafka_java(mirror.folder, MIRROR_MEGABYTES, "-XX:+UseSerialGC", loggers=loggers, program=MIRROR)
    command = (*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties.absolute()))
    return Program("mirror", command, kafka_environment())


def mirror_ready(mirror: MirrorPlace) -> bool:
    """Whether it runs and has copied a canary lately."""
    return listening(mirror.port) and canary_age(mirror.target_bootstrap) < FRESH_SECONDS
