"""The projection and the query API as child processes, and the expected rows of their tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from services.projection.engine.database import create_tables, prepare
from services.projection.engine.read_model import ReadModel, Versioned
from services.projection.engine.row_fold import versioned
from services.projection.read_models import READ_MODELS
from tests.integration.projection.shop_log import Event, topic_of
from tests.ports import free_ports
from tests.postgres_server import create_tables_of_shop
from tests.waiting import wait_until_async

PATIENCE = 60.0


class Process:
    """`python -m services.projection.main <room>` with its own ports; tests restart it. `health`: the address of
    health and metrics, the projection's only one."""

    def __init__(self, room: str, kafka: str, database_url: str, log: Path, **settings: str) -> None:
        self.port, health_port = free_ports(2)
        if room == "project":
            health_port = self.port
        self.url, self.health = (f"http://127.0.0.1:{port}" for port in (self.port, health_port))
        module = settings.pop("module", "services.projection.main")
        self._command = [sys.executable, "-m", module, room]
        self._environment = {
            **os.environ,
            "DAYBOOK_KAFKA": kafka,
            "DAYBOOK_DATABASE_URL": database_url,
            "DAYBOOK_HTTP_PORT": str(self.port),
            "DAYBOOK_HEALTH_PORT": str(health_port),
            **{f"DAYBOOK_{name.upper()}": value for name, value in settings.items()},
        }
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.child = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def restart_if_ended(self) -> None:
        """Restarts an ended process, as a supervisor does."""
        if self.child.poll() is not None:
            self.start()

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait(PATIENCE)

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(PATIENCE)

    async def ready(self, seconds: float = PATIENCE) -> None:
        async with httpx.AsyncClient() as client:
            await until(lambda: self._answers(client), lambda: f"not ready: {self.tail()}", seconds)

    async def _answers(self, client: httpx.AsyncClient) -> bool:
        assert self.child.poll() is None, self.tail()
        try:
            return (await client.get(f"{self.health}/health/ready")).status_code == 200
        except httpx.TransportError:
            return False

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def tail(self) -> str:
        return self.log_text()[-3000:]


class QueryApi(httpx.AsyncClient):
    """A client of a query API, which knows the address of its health and metrics."""

    def __init__(self, query: Process) -> None:
        super().__init__(base_url=query.url, timeout=60)
        self.health = query.health


# A folder in which no stack was ever started.
NO_STACK = f"{tempfile.gettempdir()}/daybook-without-a-stack"
WITH_OTHER_MODELS = "tests.integration.projection.other_models"


def daybook(
    kafka: str, database_url: str, *arguments: str, module: str = "infra.cli", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a `daybook` command on these stores, in its own process."""
    settings |= {"kafka": kafka, "database_url": database_url, "home": NO_STACK}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **{f"DAYBOOK_{name.upper()}": value for name, value in settings.items()}},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def running(room: str, kafka: str, database_url: str, log: Path, **settings: str) -> Iterator[Process]:
    """A process, on a database with the tables that its code expects."""
    if "test_register" in settings:
        done = daybook(kafka, database_url, "migrate", **settings)
        assert done.returncode == 0, done.stderr
    else:
        create_tables_of_shop(database_url)
    process = Process(room, kafka, database_url, log, **settings)
    try:
        yield process
    finally:
        process.kill()


@asynccontextmanager
async def connected(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    await prepare(connection)
    try:
        yield connection
    finally:
        await connection.close()


async def until(
    met: Callable[[], Any], otherwise: str | Callable[[], str], seconds: float = PATIENCE
) -> None:
    await wait_until_async(met, otherwise, seconds, error=lambda late: AssertionError(f"{late}"))


def folded(model: ReadModel[Any], events: Iterable[Event]) -> dict[str, Versioned[Any]]:
    """The pure fold: the expected rows."""
    rows: dict[str, Versioned[Any]] = {}
    for event in events:
        if topic_of(event) in model.topics:
            key = event.metadata.subject
            rows[key] = versioned(model.fold, rows.get(key), event)
    return rows


async def stored_versions(connection: Any, model: ReadModel[Any], keys: Iterable[str]) -> dict[str, int]:
    rows = await model.store(model.name).load(connection, list(keys))
    return {key: row.version for key, row in rows.items()}


async def applied(connection: Any, events: Iterable[Event]) -> bool:
    """Whether every read model has reached the last version of every entity."""
    expected: dict[str, dict[str, int]] = {}
    for event in events:
        expected.setdefault(topic_of(event), {})[event.metadata.subject] = event.metadata.version
    try:
        for model in READ_MODELS:
            versions = expected.get(model.topics[0], {})
            if versions and await stored_versions(connection, model, versions) != versions:
                return False
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return False
    return True


async def tables(connection: Any, model: ReadModel[Any], schema: str = "") -> dict[str, list[Any]]:
    """Every row of every table of a read model, in order."""
    names = await connection.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", schema or model.name
    )
    return {
        row[0]: [
            tuple(record)
            for record in await connection.fetch(
                f"SELECT t::text FROM {schema or model.name}.{row[0]} t ORDER BY 1"
            )
        ]
        for row in names
    }


async def differences(
    connection: Any, events: Iterable[Event], models: Iterable[ReadModel[Any]] = READ_MODELS
) -> list[str]:
    """The rows that differ from the pure fold, which is stored in a scratch schema for the comparison."""
    events, report = list(events), []
    for model in models:
        stored = await tables(connection, model)
        scratch = replace(model, name=f"{model.name}_expected")
        transaction = connection.transaction()
        await transaction.start()
        await create_tables(connection, scratch)
        await model.store(scratch.name).save(connection, folded(model, events))
        expected = await tables(connection, scratch)
        await transaction.rollback()
        for table, rows in expected.items():
            differing = Counter(rows)
            differing.subtract(stored[table])
            report += [f"{model.name}.{table}: {row[0]}" for row, count in differing.items() if count]
    return report
