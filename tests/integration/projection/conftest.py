"""One running projection for the tests of a module that only read, and empty logs for the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.projection.processes import Process, connected, running
from tests.integration.projection.shop_log import LogWriter, fresh_topics


@dataclass
class Shop:
    """A log, a database, and a projection between them that is ready."""

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
