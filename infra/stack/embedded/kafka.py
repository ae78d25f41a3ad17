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

from infra.base.errors import NotReady
from infra.base.ports import HOST, listening
from infra.base.settings import ROOT
from infra.stack.embedded.child import Program, Server
from infra.stack.embedded.java import classpath, find_java
from infra.stack.mirror_settings import FRESH_SECONDS, MirrorPlace, canary_age, mirror_properties
from infra.stack.storage import no_room_to_start
from services.kernel.log import clients

READY_SECONDS = 90
# Brokers in containers have the same settings.
SETTINGS = ROOT / "infra" / "kafka" / "broker.properties"

_PLACE = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}{peer_listener}
advertised.listeners=PLAINTEXT://{host}:{port}{peer_advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PEER:PLAINTEXT
controller.quorum.bootstrap.servers={host}:{controller_port}
log.dirs={logs}
"""

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

    `peer_port` is a second listener, for the other site; it advertises `link_port` to its clients.
    """

    folder: Path
    port: int
    controller_port: int
    heap_megabytes: int = 384
    peer_port: int | None = None
    link_port: int | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"


def prepare_broker(broker: BrokerPlace) -> Program:
    """Write the configuration, format the storage once, and return what to run.

    Raises NotReady where the disk is nearly full: the broker would empty its own log.
    """
    broker.folder.mkdir(parents=True, exist_ok=True)
    if reason := no_room_to_start([broker.folder]):
        raise NotReady(reason)
    properties = broker.folder / "server.properties"
    logs = broker.folder.absolute() / "logs"
    properties.write_text(
        _PLACE.format(
            host=HOST,
            port=broker.port,
            controller_port=broker.controller_port,
            logs=logs,
            peer_listener=f",PEER://{HOST}:{broker.peer_port}" if broker.peer_port else "",
            peer_advertised=f",PEER://{HOST}:{broker.link_port}" if broker.peer_port else "",
        )
        + SETTINGS.read_text()
    )
    java = kafka_java(broker.folder, broker.heap_megabytes, "-Xms128m")
    if not (logs / "meta.properties").exists():
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


def broker_ready(bootstrap: str) -> bool:
    """Whether a broker responds with members of the cluster."""
    return bool(members_seen(bootstrap))


def members_seen(bootstrap: str) -> Collection[int]:
    """The numbers of the brokers that are members, as one of these addresses names them; none where it is silent."""
    if not any(listening(int(address.rpartition(":")[2])) for address in bootstrap.split(",")):
        return ()
    try:
        return frozenset(clients.admin(bootstrap, {"log_level": 0}).list_topics(timeout=5).brokers)
    except KafkaException:
        return ()


class EmbeddedBroker(Server):
    """A broker that the caller starts and stops; its state stays in the folder."""

    def __init__(self, folder: Path, port: int, controller_port: int, heap_megabytes: int = 384) -> None:
        super().__init__("the broker", folder, READY_SECONDS)
        self.layout = BrokerPlace(folder, port, controller_port, heap_megabytes)

    @property
    def bootstrap(self) -> str:
        return self.layout.bootstrap

    def _program(self) -> Program:
        return prepare_broker(self.layout)

    def ready(self) -> bool:
        return broker_ready(self.bootstrap)


def prepare_mirror(mirror: MirrorPlace) -> Program:
    """Write the configuration and return what to run."""
    return mirror_program(mirror, mirror_properties(mirror))


def mirror_program(mirror: MirrorPlace, content: str) -> Program:
    """Write `content` as the configuration and return what to run."""
    mirror.folder.mkdir(parents=True, exist_ok=True)
    properties = mirror.folder / "mirror.properties"
    properties.write_text(content)
    # the proof of exactly-once is in this log: ExactlyOnceWorkerSourceTask
    loggers = ("org.apache.kafka.connect.runtime", "org.apache.kafka.connect.mirror")
    java = kafka_java(mirror.folder, mirror.heap_megabytes, "-XX:+UseSerialGC", loggers=loggers)
    command = (*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties.absolute()))
    return Program("mirror", command, kafka_environment())


def mirror_ready(mirror: MirrorPlace) -> bool:
    """Whether it runs and has copied a canary lately."""
    return listening(mirror.port) and canary_age(mirror.target_bootstrap) < FRESH_SECONDS
