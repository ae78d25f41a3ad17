"""The real stack for tests: one broker and one PostgreSQL for the whole session, a new database per test.

    kafka            "host:port" of the session's broker
    database_url     "postgresql://…" of the session's database; state in it is shared, prefer fresh_database
    fresh_database   "postgresql://…" of an empty database of this test alone
    stack_folder     the session's folder, removed at its end

Both processes die with the session, also when it is killed. Topic creation is off: create what a test uses.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from infra.embedded.broker import EmbeddedBroker
from infra.embedded.ports import free_ports
from infra.embedded.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def stack_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="session")
def kafka(stack_folder: Path) -> Iterator[str]:
    port, controller_port = free_ports(2)
    broker = EmbeddedBroker(stack_folder / "broker", port, controller_port, heap_megabytes=256)
    broker.start()
    yield broker.bootstrap
    # Nobody reads its state again: no need to wait for a clean stop.
    broker.kill()


@pytest.fixture(scope="session")
def database_url(stack_folder: Path) -> Iterator[str]:
    server = EmbeddedPostgres(stack_folder / "postgres", *free_ports(1))
    server.start()
    yield server.url()
    server.kill()


@pytest.fixture
async def fresh_database(database_url: str) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    admin = await asyncpg.connect(database_url)
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        yield f"{database_url.rpartition('/')[0]}/{name}"
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()
