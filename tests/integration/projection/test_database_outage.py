"""The query API while its database is stopped, and while it is frozen."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from services.projection.engine.database import QUERY_SECONDS
from tests.integration.projection.processes import Process, QueryApi, running, until
from tests.integration.projection.shop_log import fresh_topics
from tests.ports import free_ports
from tests.postgres_server import EmbeddedPostgres, create_tables_of_shop

pytestmark = pytest.mark.long

NOBODY = "127.0.0.1:1"  # without a broker the lag is unknown, and reads continue


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server for this test, which stops and freezes it."""
    server = EmbeddedPostgres(tmp_path / "postgres", *free_ports(1))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def api(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[QueryApi]:
    with running("query", NOBODY, postgres.url(), tmp_path / "query.log") as query:
        await query.ready()
        async with QueryApi(query) as client:
            yield client


async def code(api: httpx.AsyncClient, path: str) -> str:
    response = await api.get(path)
    return str(response.json().get("code", response.status_code))


async def test_a_database_outage_is_reported_and_the_database_is_used_again(
    postgres: EmbeddedPostgres, api: httpx.AsyncClient
) -> None:
    assert await code(api, "/orders/o-1") == "order_not_found"
    postgres.stop()
    for path in ("/orders/o-1", "/orders", "/stock/a", "/projections"):
        response = await api.get(path)
        assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
        assert response.headers["retry-after"] == "1"
    postgres.start()

    async def found_again() -> bool:
        return await code(api, "/orders/o-1") == "order_not_found"

    await until(found_again, "the database is back and not used")


async def test_a_projection_waits_for_a_database_that_starts_later(
    kafka: str, postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    fresh_topics(kafka)
    create_tables_of_shop(postgres.url())
    postgres.stop()
    group = {"projection_group": f"early-{tmp_path.name}"}
    projection = Process("project", kafka, postgres.url(), tmp_path / "projection.log", **group)
    try:
        await until(lambda: serving(projection), "it does not serve")
        postgres.start()
        await projection.ready()
    finally:
        projection.kill()


async def serving(process: Process) -> bool:
    """It responds, and has had time to try its database once."""
    assert process.child.poll() is None, process.tail()
    try:
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{process.health}/health/ready")).status_code == 503
    except httpx.TransportError:
        return False
    await asyncio.sleep(1)
    assert process.child.poll() is None, process.tail()
    return True


async def test_a_database_that_stands_still_is_not_waited_for_long(
    postgres: EmbeddedPostgres, api: QueryApi
) -> None:
    assert await code(api, "/orders/o-1") == "order_not_found"
    server = psutil.Process(postgres.child.pid)
    frozen = [server, *server.children(recursive=True)]
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert await code(api, "/orders/o-1") == "database_unavailable"
        assert time.monotonic() - began < 3 * QUERY_SECONDS

        async def not_ready() -> bool:
            """Clients learn it, and why is on the other listener."""
            public = await api.get("/health/ready")
            reason = (await api.get(f"{api.health}/health/ready")).json().get("reason", "")
            return (public.status_code, public.text) == (503, "unavailable") and "PostgreSQL" in reason

        await until(not_ready, "it calls itself ready")
        assert (await api.get("/metrics")).status_code == 404
    finally:
        for process in frozen:
            process.send_signal(signal.SIGCONT)
