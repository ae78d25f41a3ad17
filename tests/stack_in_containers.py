"""The second backend of tests/stack.py: the same two stores as containers, `pytest --stack containers`."""

from __future__ import annotations

from typing import Self

from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.container import DockerContainer

from infra.base.settings import ROOT
from infra.base.waiting import wait_until
from infra.stack.embedded.kafka import SETTINGS

KAFKA_IMAGE, POSTGRES_IMAGE = "apache/kafka:4.3.1", "postgres:18"
OUTSIDE = 19092
START = "/tmp/start.sh"
READY = "Kafka Server started"
READY_SECONDS = 120.0
OWN_START = "/etc/kafka/docker/run"


class KafkaContainer(DockerContainer):
    """One broker with the settings of the embedded one, on a port that the engine chooses.

    The broker must say that port to its clients, and it is known only when the container runs: so the
    container waits for its start script.
    """

    def __init__(self) -> None:
        super().__init__(KAFKA_IMAGE)
        self.with_exposed_ports(OUTSIDE)
        self.with_volume_mapping(str(ROOT / SETTINGS), "/mnt/shared/config/server.properties", "ro")
        self.with_envs(
            KAFKA_NODE_ID="1",
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_LISTENERS=f"PLAINTEXT://:9092,HOST://:{OUTSIDE},CONTROLLER://:9093",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT",
            KAFKA_HEAP_OPTS="-Xms128m -Xmx256m",
        )
        self.with_command(["bash", "-c", f"until [ -f {START} ]; do sleep 0.1; done; exec bash {START}"])

    @property
    def bootstrap(self) -> str:
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(OUTSIDE)}"

    def start(self) -> Self:
        """Return when it is ready. Raises TimeoutError with the end of its log."""
        super().start()
        listeners = f"PLAINTEXT://localhost:9092,HOST://{self.bootstrap}"
        script = f"export KAFKA_ADVERTISED_LISTENERS={listeners}\nexec {OWN_START}\n"
        self.copy_into_container(script.encode(), START, 0o755)
        wait_until(
            lambda: READY in logs(self),
            lambda: f"{KAFKA_IMAGE} is ready:\n{logs(self)[-3000:]}",
            READY_SECONDS,
            every=0.2,
        )
        return self


def logs(container: DockerContainer) -> str:
    """All that a container said."""
    return "".join(part.decode(errors="replace") for part in container.get_logs())


def postgres_container() -> PostgresContainer:
    """PostgreSQL with the embedded one's user and database; not started yet."""
    return PostgresContainer(
        POSTGRES_IMAGE, username="daybook", password="daybook", dbname="daybook", driver=None
    )
