"""A PostgreSQL server of one test, how it crashes, and the tables that processes expect."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import asyncpg
import psutil

from infra.base.ports import HOST
from infra.stack.embedded.child import Program
from infra.stack.embedded.postgres import (
    READY_SECONDS,
    PostgresPlace,
    password,
    postgres_ready,
    prepare_postgres,
)
from infra.stack.shop import DATABASE, USER
from services.projection.engine.database import migrate
from services.projection.read_models import READ_MODELS
from tests.servers import Server


class EmbeddedPostgres(Server):
    """A server that the caller starts and stops; its state stays in the folder."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("PostgreSQL", folder, READY_SECONDS)
        self.layout = PostgresPlace(folder, port, over_tcp="all")

    def url(self, database: str = DATABASE) -> str:
        """`postgresql://…` over TCP, as the superuser."""
        return f"postgresql://{USER}:{password(self.layout.folder)}@{HOST}:{self.layout.port}/{database}"

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


def create_tables_of_shop(url: str) -> None:
    """What `daybook up` does before the first process. Also from a running event loop."""

    async def migrated() -> None:
        connection = await asyncpg.connect(url)
        try:
            await migrate(connection, READ_MODELS)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, migrated()).result()
