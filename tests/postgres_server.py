"""A PostgreSQL server of one test, and how it crashes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from infra.stack.embedded.child import Program, Server
from infra.stack.embedded.postgres import (
    READY_SECONDS,
    PostgresPlace,
    postgres_ready,
    prepare_postgres,
)
from infra.stack.shop import DATABASE


class EmbeddedPostgres(Server):
    """A server that the caller starts and stops; its state stays in the folder."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("PostgreSQL", folder, READY_SECONDS)
        self.layout = PostgresPlace(folder, port)

    def url(self, database: str = DATABASE) -> str:
        return self.layout.url(database)

    def _program(self) -> Program:
        return prepare_postgres(self.layout)

    def ready(self) -> bool:
        return postgres_ready(self.layout)

    def kill(self) -> None:
        """End it at once, as a crash would. Returns when all its processes have ended: before, none can start."""
        backends: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            backends = psutil.Process(self.child.pid).children(recursive=True)
        super().kill()
        psutil.wait_procs(backends, timeout=READY_SECONDS)
