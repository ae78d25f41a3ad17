"""What a frozen projection leaves open in PostgreSQL ends before its successor gives up."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from services.projection.engine.database import COMMAND_SECONDS, WRITER_SETTINGS, pool
from services.projection.engine.position import begin
from services.projection.read_models import ORDERS
from tests.postgres_server import create_tables_of_shop

PARTITION = ("order.events", 0)
# The first message of a statement: a client that is frozen between two messages leaves the server in this state.
_STATEMENT = b"\0SELECT 1\0\0\0"
PARSE = b"P" + (len(_STATEMENT) + 4).to_bytes(4, "big") + _STATEMENT
SHORTENED = 0.05  # of the times in `WRITER_SETTINGS`, so that the test is short
STARTS_LATER_SECONDS = 0.5  # as a successor does: its own transaction has the same time


def _shortened(value: str) -> str:
    return f"{float(value.removesuffix('s')) * SHORTENED * 1000:.0f}ms"


@pytest.mark.parametrize("sending", [False, True], ids=["between statements", "in a statement"])
async def test_its_transaction_ends_in_time(fresh_database: str, sending: bool) -> None:
    create_tables_of_shop(fresh_database)
    settings = {name: _shortened(value) for name, value in WRITER_SETTINGS.items()}
    async with pool(fresh_database, 1, settings, COMMAND_SECONDS * SHORTENED) as successors:
        frozen = await asyncpg.connect(fresh_database, server_settings=settings)
        before = await begin(frozen, ORDERS, [PARTITION])
        await frozen.execute("BEGIN")
        await frozen.execute("UPDATE position SET next_offset = 7")
        if sending:
            frozen._transport.write(PARSE)  # type: ignore[attr-defined]
        await asyncio.sleep(STARTS_LATER_SECONDS)
        async with successors.acquire() as successor:
            assert await begin(successor, ORDERS, [PARTITION]) == before
    frozen.terminate()
