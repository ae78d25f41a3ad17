"""A rebuild as usually written: a statement per event, or `executemany`; the same fold, the same tables.

Both have what the shop's own rebuild has: one transaction per fetched run, no waiting for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import asyncpg

from services.kernel.log.rule import FIRST_EPOCH, Journal
from services.projection.engine.columns import ENGINE_COLUMNS, columns
from services.projection.engine.database import create_tables, pool
from services.projection.engine.read_model import Arrival, Connection, Versioned
from services.projection.engine.row_fold import versioned
from services.projection.engine.runs import Runs
from services.projection.orders.fold import Order, fold
from services.projection.orders.store import COLUMNS, CONTENT, OrderStore
from services.projection.read_models import ORDERS

Apply = Callable[[Connection, OrderStore, list[Arrival]], Coroutine[Any, Any, None]]
SCHEMA = ORDERS.name
ROW = (*COLUMNS, "short")
NAMES = ("order_id", *ENGINE_COLUMNS, *(name for name in ROW if name != "order_id"))
_ONE = (
    f"INSERT INTO {SCHEMA}.orders ({', '.join(NAMES)}) "
    f"VALUES ({', '.join(f'${number + 1}' for number in range(len(NAMES)))}) "
    f"ON CONFLICT (order_id) DO UPDATE SET ({', '.join(NAMES[1:])}) = "
    f"({', '.join(f'excluded.{name}' for name in NAMES[1:])})"
)
_CONTENT = f"INSERT INTO {SCHEMA}.content ({', '.join(CONTENT)}) VALUES ($1, $2, $3)"


async def rebuild(kafka: str, database_url: str, ends: Mapping[tuple[str, int], int], apply: Apply) -> int:
    """From the first event to `ends` into new tables; the number of events."""
    store, count, decisions = OrderStore(SCHEMA), 0, Journal()
    hasty = {"synchronous_commit": "off"}
    async with pool(database_url, 1, hasty) as connections, connections.acquire() as connection:
        async with connection.transaction():
            await create_tables(connection, ORDERS)
        with Runs(kafka, dict.fromkeys(ends, 0)) as runs:
            while batches := runs.fetch(ends, 0):
                read = [batch.read(batch.start, FIRST_EPOCH, 2, decisions) for batch in batches]
                arrivals = [arrival for contents in read for arrival in contents.arrivals]
                async with connection.transaction():
                    await apply(connection, store, arrivals)
                count += len(arrivals)
    return count


async def row_at_a_time(connection: Connection, store: OrderStore, arrivals: list[Arrival]) -> None:
    """Load the row, fold one event, write the row."""
    for arrival in arrivals:
        assert arrival.event is not None, arrival.error
        rows = await store.load(connection, [arrival.key])
        await _write_one(connection, versioned(fold, rows.get(arrival.key), arrival.event))


async def _write_one(connection: Connection, order: Versioned[Order]) -> None:
    await connection.execute(_ONE, *_values(order))
    if order.row.content is not None:
        await connection.execute(_CONTENT, *_content(order.row))


async def executemany(connection: Connection, store: OrderStore, arrivals: list[Arrival]) -> None:
    """Load the rows of a run at once, fold it, write with `executemany`."""
    rows = await store.load(connection, list({arrival.key for arrival in arrivals}))
    changed: dict[str, Versioned[Order]] = {}
    for arrival in arrivals:
        assert arrival.event is not None, arrival.error
        key = arrival.key
        changed[key] = versioned(fold, changed.get(key) or rows.get(key), arrival.event)
    await connection.executemany(_ONE, [_values(order) for order in changed.values()])
    new = [_content(order.row) for order in changed.values() if order.row.content is not None]
    await connection.executemany(_CONTENT, new)


def _values(order: Versioned[Order]) -> list[Any]:
    return [getattr(order if name in ENGINE_COLUMNS else order.row, name) for name in NAMES]


def _content(order: Order) -> list[Any]:
    ((lines,), (charges,)) = columns([order.content], ["lines", "charges"])
    return [order.order_id, lines, charges]


async def empty(database_url: str) -> None:
    """Remove the tables."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    finally:
        await connection.close()
