"""Kafka as child processes: a broker of one node (KRaft, combined roles), and MirrorMaker2 in dedicated mode."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from contracts.kafka_address import bootstrap_of, secured
from infra.base.errors import NotReady
from infra.base.ports import HOST, listening
from infra.base.settings import ROOT, StackSettings
from infra.identity.authority import BROKER, Authority
from infra.stack.embedded.child import Program, Server
from infra.stack.embedded.java import classpath, find_java
from infra.stack.mirror_settings import FRESH_SECONDS, MirrorPlace, canary_age, mirror_properties
from infra.stack.security import INTERNAL, ListenerPorts, authority_of, security_properties
from infra.stack.storage import no_room_to_start
from services.kernel.log import clients

READY_SECONDS = 90
# What the authorizer denies is in the second one.
BROKER_LOGGERS = ("kafka.server", "kafka.authorizer.logger")
# Brokers in containers have the same settings.
SETTINGS = ROOT / "infra" / "kafka" / "broker.properties"

_LOGGING = """\
Configuration:
  Appenders:
    Console: {{name: STDOUT, PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}}}
  Loggers:
    Root: {{level: WARN, AppenderRef: [{{ref: STDOUT}}]}}
    Logger:
{loggers}
"""


def kafka_java(
    folder: Path, heap_megabytes: int, *options: str, loggers: Sequence[str] = ("kafka.server",)
) -> list[str]:
    """The Java command without the main class. Writes the log configuration, INFO for `loggers`, to `folder`."""
    logging = folder / "log4j2.yaml"
    lines = (f"      - {{name: {name}, level: INFO}}" for name in loggers)
    logging.write_text(_LOGGING.format(loggers="\n".join(lines)))
    return [
        str(find_java().executable),
        f"-Dlog4j2.configurationFile={logging.absolute()}",
        f"-Xmx{heap_megabytes}m",
        *options,
        "-cp",
        classpath("kafka"),
    ]


def kafka_environment() -> dict[str, str]:
    """The environment without KAFKA_*, which Kafka's programs would read as settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}


@dataclass(frozen=True)
class BrokerPlace:
    """A broker's folder (state, log) and its ports on loopback.

    `peer_port` is a second listener, for the other site; it advertises `link_port` to its clients. With an `authority`
    it is secured, and has a listener for brokers, `internal_port`.
    """

    folder: Path
    port: int
    controller_port: int
    heap_megabytes: int = 384
    peer_port: int | None = None
    link_port: int | None = None
    internal_port: int | None = None
    authority: Authority | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def own_address(self) -> str:
        """For whoever starts it: it may have no users yet."""
        if self.authority is None:
            return self.bootstrap
        return secured(f"{HOST}:{self.internal_port}", self.authority.identity(BROKER))

    def properties(self) -> dict[str, str]:
        """What is its own in the settings file."""
        controller = f"{HOST}:{self.controller_port}"
        ports = ListenerPorts(self.port, self.internal_port, self.peer_port, self.link_port)
        listeners, advertised = ports.settings(secured=self.authority is not None)
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "advertised.listeners": advertised,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.folder.absolute() / "logs"),
            **security_properties(self.authority),
        }


def site_broker(settings: StackSettings, *, linked: bool) -> BrokerPlace:
    """The broker of a site that has one. The other site reaches a `linked` one."""
    return BrokerPlace(
        settings.home / "broker",
        settings.port("broker"),
        settings.port("controller"),
        peer_port=settings.port("peer") if linked else None,
        link_port=settings.port("link") if linked else None,
        internal_port=settings.port(INTERNAL) if settings.secured else None,
        authority=authority_of(settings),
    )


def prepare_broker(broker: BrokerPlace) -> Program:
    """Write the configuration, format the storage once, and return what to run.

    Raises NotReady where the disk is nearly full: the broker would empty its own log.
    """
    broker.folder.mkdir(parents=True, exist_ok=True)
    if reason := no_room_to_start([broker.folder]):
        raise NotReady(reason)
    properties = broker.folder / "server.properties"
    own = "".join(f"{name}={value}\n" for name, value in broker.properties().items())
    properties.write_text(own + SETTINGS.read_text())
    java = kafka_java(broker.folder, broker.heap_megabytes, "-Xms128m", loggers=BROKER_LOGGERS)
    if not (broker.folder / "logs" / "meta.properties").exists():
        _format([*java, "kafka.tools.StorageTool"], properties)
    return Program("broker", (*java, "kafka.Kafka", str(properties.absolute())), kafka_environment())


def _format(storage_tool: list[str], properties: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [*storage_tool, "format", "--standalone", f"--cluster-id={cluster}", "-c", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=READY_SECONDS)
    if done.returncode:
        raise NotReady(
            f"formatting the broker's storage failed:\n{(done.stdout + done.stderr).strip()[-2000:]}"
        )


def broker_ready(address: str) -> bool:
    """Whether a broker responds with members of the cluster."""
    return bool(members_seen(address))


def members_seen(address: str) -> Collection[int]:
    """The numbers of the brokers that are members, as one of these brokers names them; none where it is silent."""
    if not any(listening(int(broker.rpartition(":")[2])) for broker in bootstrap_of(address).split(",")):
        return ()
    try:
        return frozenset(clients.admin(address, {"log_level": 0}).list_topics(timeout=5).brokers)
    except KafkaException:
        return ()


class EmbeddedBroker(Server):
    """A broker that the caller starts and stops; its state stays in the folder."""

    def __init__(self, folder: Path, port: int, controller_port: int, heap_megabytes: int = 384) -> None:
        super().__init__("the broker", folder, READY_SECONDS)
        self.layout = BrokerPlace(folder, port, controller_port, heap_megabytes)

    @classmethod
    def of_site(cls, settings: StackSettings) -> EmbeddedBroker:
        """The broker of a site that has one, for clients of this site."""
        broker = cls(settings.home / "broker", settings.port("broker"), settings.port("controller"))
        broker.layout = site_broker(settings, linked=False)
        return broker

    @property
    def bootstrap(self) -> str:
        return self.layout.bootstrap

    def _program(self) -> Program:
        return prepare_broker(self.layout)

    def ready(self) -> bool:
        return broker_ready(self.layout.own_address)


def prepare_mirror(mirror: MirrorPlace) -> Program:
    """Write the configuration and return what to run."""
    return mirror_program(mirror, mirror_properties(mirror))


def mirror_program(mirror: MirrorPlace, content: str) -> Program:
    """Write `content` as the configuration and return what to run."""
    mirror.folder.mkdir(parents=True, exist_ok=True)
    properties = mirror.folder / "mirror.properties"
    properties.touch(mode=0o600)  # it contains a password
    properties.write_text(content)
    # the proof of exactly-once is in this log: ExactlyOnceWorkerSourceTask
    loggers = ("org.apache.kafka.connect.runtime", "org.apache.kafka.connect.mirror")
    java = kafka_java(mirror.folder, mirror.heap_megabytes, "-XX:+UseSerialGC", loggers=loggers)
    command = (*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties.absolute()))
    return Program("mirror", command, kafka_environment())


def mirror_ready(mirror: MirrorPlace) -> bool:
    """Whether it runs and has copied a canary lately."""
    return listening(mirror.port) and canary_age(mirror.target_bootstrap) < FRESH_SECONDS
