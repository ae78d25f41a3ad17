"""One node of the cluster as a child process: a broker with a rack of its own, or the controller apart."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from infra.base.errors import NotReady
from infra.base.ports import HOST
from infra.base.settings import ROOT
from infra.stack.embedded.child import Program
from infra.stack.embedded.jars import classpath
from infra.stack.embedded.java import find_java

FORMAT_SECONDS = 300

# What nodes in containers are told too.
SETTINGS = ROOT / "infra" / "kafka" / "replicated.properties"

_EVERY_NODE = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}

_BROKER = {
    # leadership goes home when somebody asks, not at a moment of its own: drills ask
    "auto.leader.rebalance.enable": "false",
    # retention and compaction are looked at every few seconds, so that a drill can watch them
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
}

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
class Node:
    """Where a node lives. `own` are settings of this node alone, laid over all others."""

    id: int
    role: Literal["broker", "controller"]
    folder: Path
    port: int
    controller: str
    cluster_id: str
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
        """All that its file says."""
        place = {
            "process.roles": self.role,
            "node.id": str(self.id),
            "controller.quorum.bootstrap.servers": self.controller,
            "log.dirs": str(self.folder.absolute() / "logs"),
        }
        if self.role == "controller":
            return {
                **_shared(),
                **_EVERY_NODE,
                **place,
                "listeners": f"CONTROLLER://{self.address}",
                **self.own,
            }
        place |= {
            "broker.rack": self.rack,
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
        }
        return {**_shared(), **_EVERY_NODE, **_BROKER, **place, **self.own}


def _shared() -> dict[str, str]:
    lines = [line for line in SETTINGS.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def prepare_node(node: Node) -> Program:
    """Write its configuration, format its storage once, and return what to run. Raises NotReady."""
    node.folder.mkdir(parents=True, exist_ok=True)
    properties, logging = node.folder / "server.properties", node.folder / "log4j2.yaml"
    properties.write_text("".join(f"{name}={value}\n" for name, value in node.properties().items()))
    logging.write_text(_LOGGING)
    java = [
        str(find_java().executable),
        f"-Dlog4j2.configurationFile={logging.absolute()}",
        f"-Xmx{node.heap_megabytes}m",
        "-Xms96m",
        "-cp",
        classpath("kafka"),
    ]
    if not (node.folder / "logs" / "meta.properties").exists():
        _format(java, node, properties)
    return Program(node.name, (*java, "kafka.Kafka", str(properties.absolute())), clean_environment())


def clean_environment() -> dict[str, str]:
    """Ours without KAFKA_*, which Kafka's own programs would take for settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}


def _format(java: list[str], node: Node, properties: Path) -> None:
    who = "--standalone" if node.role == "controller" else "--no-initial-controllers"
    # It lives for seconds: code that is quick to compile halves them.
    command = [*java, "kafka.tools.StorageTool", "format", who]
    command.insert(1, "-XX:TieredStopAtLevel=1")
    command += [f"--cluster-id={node.cluster_id}", "-c", str(properties)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FORMAT_SECONDS)
    except subprocess.TimeoutExpired as slow:
        raise NotReady(f"formatting the storage of {node.name} took over {FORMAT_SECONDS} s") from slow
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise NotReady(f"formatting the storage of {node.name} failed:\n{said}")
