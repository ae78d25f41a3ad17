"""Reads the read models: rows and positions of one moment, by plain SQL."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import asyncpg
import pyarrow as pa

from analytics.errors import AnalyticsError
from analytics.offsets import Offsets

Result = TypeVar("Result")
QUERIES: Mapping[str, tuple[str, pa.Schema]] = {
    "orders": (
        "SELECT order_id, status, version, gross, refunded, units FROM orders.orders",
        pa.schema(
            {"entity": pa.string(), "status": pa.string()}
            | dict.fromkeys(("version", "gross", "refund", "units"), pa.int64())
        ),
    ),
    "stock": (
        "SELECT sku, on_hand, reserved, version FROM stock.stock",
        pa.schema({"entity": pa.string()} | dict.fromkeys(("on_hand", "reserved", "version"), pa.int64())),
    ),
    "sales_daily": (
        "SELECT day, country, currency, gross, returned, orders, units FROM sales_daily.sales_daily",
        pa.schema(
            {"day": pa.date32(), "country": pa.string(), "currency": pa.string()}
            | dict.fromkeys(("gross", "returned", "orders", "units"), pa.int64())
        ),
    ),
}
POSITIONS = "SELECT read_model, topic, partition, next_offset FROM position WHERE read_model = ANY($1)"
PARKED = "SELECT topic, key, count(*) FROM parked WHERE read_model = ANY($1) GROUP BY topic, key"
REQUEST_SECONDS = 60.0


class DatabaseUnreachable(AnalyticsError):
    """The read models' database did not respond, or has no such tables."""


@dataclass(frozen=True)
class ReadModels:
    """One moment: each read model's rows and position; by topic and key, how many records are parked."""

    rows: Mapping[str, pa.Table]
    positions: Mapping[str, Offsets]
    parked: Mapping[tuple[str, str], int]


def read_positions(database_url: str) -> Mapping[str, Offsets]:
    """Returns the position of each read model. Raises DatabaseUnreachable."""
    return asyncio.run(_within(database_url, _positions))


def read_models(database_url: str) -> ReadModels:
    """Returns rows and positions of one database snapshot. Raises DatabaseUnreachable."""
    return asyncio.run(_within(database_url, _snapshot))


async def _within(database_url: str, read: Callable[[asyncpg.Connection], Awaitable[Result]]) -> Result:
    try:
        connection = await asyncpg.connect(database_url, timeout=REQUEST_SECONDS)
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        raise DatabaseUnreachable(f"the read models' database does not respond: {error}") from error
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await read(connection)
    except asyncpg.UndefinedTableError as error:
        raise DatabaseUnreachable(f"the database has no read models: {error}") from error
    finally:
        await connection.close()


async def _positions(connection: asyncpg.Connection) -> Mapping[str, Offsets]:
    positions: dict[str, dict[str, dict[int, int]]] = {name: {} for name in QUERIES}
    for read_model, topic, partition, offset in await connection.fetch(POSITIONS, list(QUERIES)):
        positions[read_model].setdefault(topic, {})[partition] = offset
    return positions


async def _snapshot(connection: asyncpg.Connection) -> ReadModels:
    positions = await _positions(connection)
    rows = {}
    for name, (query, schema) in QUERIES.items():
        records = await connection.fetch(query, timeout=REQUEST_SECONDS)
        columns = zip(*records, strict=True) if records else [[] for _ in schema]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        rows[name] = pa.Table.from_arrays(arrays, schema=schema)
    parked = {(topic, key): count for topic, key, count in await connection.fetch(PARKED, list(QUERIES))}
    return ReadModels(rows, positions, parked)
