"""The real stack for tests: one broker and one PostgreSQL for the whole session, a new database per test.

    kafka            "host:port" of the session's broker
    database_url     "postgresql://…" of the session's database; state in it is shared, prefer fresh_database
    fresh_database   "postgresql://…" of an empty database of this test alone
    stack_folder     the session's folder, removed at its end

Both processes die with the session, also when it is killed. Topic creation is off: create what a test uses.
With `--stack containers` the stores are containers of the published images; the tests are the same.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from infra.log.topics import create_topics, ensure_site
from infra.stack.embedded.kafka import lone_broker
from tests.ports import free_ports
from tests.postgres_server import EmbeddedPostgres
from tests.servers import NodeServer


@pytest.fixture(scope="session")
def stack_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "where the broker and PostgreSQL of the tests run: child processes, or containers"
    parser.addoption("--stack", choices=["embedded", "containers"], default="embedded", help=about)


def in_containers(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--stack") == "containers")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, stack_folder: Path) -> Iterator[str]:
    if in_containers(request):
        from tests.stack_in_containers import KafkaContainer  # asks for an engine when it is imported

        with KafkaContainer() as container:
            yield container.bootstrap
            tell_if_failed(request, container)
        return
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(stack_folder / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    yield broker.bootstrap
    # Nobody reads its state again: no need to wait for a clean stop.
    broker.kill()


@pytest.fixture(scope="session")
def database_url(request: pytest.FixtureRequest, stack_folder: Path) -> Iterator[str]:
    if in_containers(request):
        from tests.stack_in_containers import postgres_container

        with postgres_container() as container:
            yield container.get_connection_url()
            tell_if_failed(request, container)
        return
    server = EmbeddedPostgres(stack_folder / "postgres", *free_ports(1))
    server.start()
    yield server.url()
    server.kill()


@contextmanager
def own_broker(folder: Path) -> Iterator[str]:
    """The "host:port" of another broker, for tests that the session's would disturb, or that disturb it."""
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(folder / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    try:
        yield broker.bootstrap
    finally:
        broker.kill()


@contextmanager
def site_broker(folder: Path) -> Iterator[str]:
    """The address of a broker with all topics, of a site that nobody named yet."""
    with own_broker(folder) as bootstrap:
        create_topics(bootstrap)
        ensure_site(bootstrap)
        yield bootstrap


def tell_if_failed(request: pytest.FixtureRequest, container: Any) -> None:
    """Print the end of the container's log where a test failed."""
    from tests.stack_in_containers import logs

    if request.session.testsfailed:
        print(f"{container.image}:\n{logs(container)[-20_000:]}")


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
