"""One running projection for the tests of a module that only reads, and empty logs for the other tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.projection.processes import Process, applied, connected, running, until
from tests.integration.projection.shop_log import Event, LogWriter, fresh_topics, history


@dataclass
class Shop:
    """A log, a database, and a projection that is ready."""

    kafka: str
    database_url: str
    folder: Path
    writer: LogWriter
    connection: Any
    projection: Process


@pytest.fixture
async def shop(kafka: str, fresh_database: str, tmp_path: Path) -> AsyncIterator[Shop]:
    fresh_topics(kafka)
    group = {"projection_group": f"projection-{tmp_path.name}", "session_seconds": "6"}
    with running("project", kafka, fresh_database, tmp_path / "projection.log", **group) as projection:
        await projection.ready()
        async with connected(fresh_database) as connection:
            yield Shop(kafka, fresh_database, tmp_path, LogWriter(kafka), connection, projection)


async def lived(shop: Shop, seed: int, orders: int) -> list[Event]:
    """Writes a history with aborted transactions and waits until the live projection has applied it."""
    events = history(seed, orders)
    await asyncio.to_thread(shop.writer.write_all, events, 20, spoil=0.2)
    await until(lambda: applied(shop.connection, events), "not all events were applied")
    return events
