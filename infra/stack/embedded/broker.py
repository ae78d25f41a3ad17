"""A Kafka broker of one node (KRaft, combined roles) as a child process."""

import base64
import os
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from infra.base.errors import NotReady
from infra.base.ports import HOST, listening
from infra.base.settings import ROOT
from infra.stack.embedded.child import Child, Program
from infra.stack.embedded.jars import classpath
from infra.stack.embedded.java import find_java
from infra.stack.storage import no_room_to_start
from services.kernel.log import clients

READY_SECONDS = 90
# What a broker in a container is told too.
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
    Console: {name: STDOUT, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: STDOUT}]}
    Logger:
      - {name: kafka.server, level: INFO}
"""


@dataclass(frozen=True)
class BrokerPlace:
    """Where a broker lives: its folder (state, log) and its ports on loopback.

    `peer_port` is a second listener, for the other site; who comes that way is told to come back by
    `link_port`.
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


def prepare_broker(place: BrokerPlace) -> Program:
    """Write the configuration, format the storage once, and return what to run.

    Raises NotReady where the disk is nearly full: the broker would empty its own log.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    if reason := no_room_to_start([place.folder]):
        raise NotReady(reason)
    properties, logging = place.folder / "server.properties", place.folder / "log4j2.yaml"
    logs = place.folder.absolute() / "logs"
    properties.write_text(
        _PLACE.format(
            host=HOST,
            port=place.port,
            controller_port=place.controller_port,
            logs=logs,
            peer_listener=f",PEER://{HOST}:{place.peer_port}" if place.peer_port else "",
            peer_advertised=f",PEER://{HOST}:{place.link_port}" if place.peer_port else "",
        )
        + SETTINGS.read_text()
    )
    logging.write_text(_LOGGING)
    java = [
        str(find_java().executable),
        f"-Xmx{place.heap_megabytes}m",
        "-Xms128m",
        "-cp",
        classpath("kafka"),
    ]
    java.insert(1, f"-Dlog4j2.configurationFile={logging.absolute()}")
    if not (logs / "meta.properties").exists():
        _format([*java, "kafka.tools.StorageTool"], properties)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return Program("broker", (*java, "kafka.Kafka", str(properties.absolute())), environment)


def _format(storage_tool: list[str], properties: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [*storage_tool, "format", "--standalone", f"--cluster-id={cluster}", "-c", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=READY_SECONDS)
    if done.returncode:
        raise NotReady(
            f"formatting the broker's storage failed:\n{(done.stdout + done.stderr).strip()[-2000:]}"
        )


def broker_ready(bootstrap: str) -> bool:
    """True when the broker answers with itself as a member of the cluster."""
    if not listening(int(bootstrap.rpartition(":")[2])):
        return False
    try:
        return bool(clients.admin(bootstrap, {"log_level": 0}).list_topics(timeout=5).brokers)
    except KafkaException:
        return False


class EmbeddedBroker:
    """A broker that the caller starts and stops; its state stays in the folder."""

    def __init__(self, folder: Path, port: int, controller_port: int, heap_megabytes: int = 384) -> None:
        self.place = BrokerPlace(folder, port, controller_port, heap_megabytes)
        self._child: Child | None = None

    @property
    def bootstrap(self) -> str:
        return self.place.bootstrap

    @property
    def child(self) -> Child:
        """The running process; raises NotReady before start."""
        if self._child is None:
            raise NotReady("the broker has not been started")
        return self._child

    def start(self, seconds: float = READY_SECONDS) -> None:
        """Return when it is ready. Raises NotReady, with the end of its log, when it does not come up."""
        self._child = Child(prepare_broker(self.place), self.place.folder / "broker.log")
        try:
            self._child.wait_until(self.ready, seconds)
        except NotReady:
            self._child.kill()
            raise

    def ready(self) -> bool:
        return broker_ready(self.bootstrap)

    def stop(self) -> None:
        """Stop it cleanly; its state stays."""
        self.child.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.child.kill()
