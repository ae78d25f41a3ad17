"""Reads the read models: rows and positions of one moment, by plain SQL.

The rows are read by Spark's tasks, each a range of the table's blocks, so that none needs memory for all of them. All
see the same snapshot: the driver's transaction exports it and stays open until they are done."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analytics.errors import AnalyticsError
from analytics.offsets import Offsets


@dataclass(frozen=True)
class Rows:
    """What is read of a read model: `columns` of `table`, as the columns `schema` of Spark."""

    table: str
    columns: str
    schema: str


ROWS: Mapping[str, Rows] = {
    "orders": Rows(
        "orders.orders",
        "order_id, status, version, gross, refunded, units",
        "entity string, status string, version long, gross long, refund long, units long",
    ),
    "stock": Rows(
        "stock.stock",
        "sku, on_hand, reserved, version",
        "entity string, on_hand long, reserved long, version long",
    ),
    "sales_daily": Rows(
        "sales_daily.sales_daily",
        "day, country, currency, gross, returned, orders, units",
        "day date, country string, currency string, gross long, returned long, orders long, units long",
    ),
}
ALL = (*ROWS, "order_history", "conversations")
"""The other two have no account to compare, but must have parked nothing either."""
BLOCKS_PER_TASK = 4_096  # 32 MB
ROWS_PER_BATCH = 5_000
POSITIONS = "SELECT read_model, topic, partition, next_offset FROM position WHERE read_model = ANY($1)"
PARKED = "SELECT topic, key, count(*) FROM parked WHERE read_model = ANY($1) GROUP BY topic, key"
REQUEST_SECONDS = 60.0


class DatabaseUnreachable(AnalyticsError):
    """The read models' database did not respond, or has no such tables."""


@dataclass(frozen=True)
class ReadModels:
    """One moment: each read model's rows and position; by topic and key, how many records all of them have parked."""

    rows: Mapping[str, DataFrame]
    positions: Mapping[str, Offsets]
    parked: Mapping[tuple[str, str], int]


def read_positions(database_url: str) -> Mapping[str, Offsets]:
    """Returns the position of each read model. Raises DatabaseUnreachable."""
    with _transaction(database_url) as (connection, run):
        positions: Mapping[str, Offsets] = run(_positions(connection))
        return positions


@contextmanager
def read_models(
    session: SparkSession, database_url: str, blocks_per_task: int = BLOCKS_PER_TASK
) -> Iterator[ReadModels]:
    """Yields rows and positions of one database snapshot; the rows can be read until the block ends. Raises
    DatabaseUnreachable."""
    with _transaction(database_url) as (connection, run):
        snapshot = run(connection.fetchval("SELECT pg_export_snapshot()"))
        positions = run(_positions(connection))
        rows = {}
        for name, of in ROWS.items():
            blocks = run(connection.fetchval(f"SELECT pg_relation_size('{of.table}') / 8192"))
            tasks = blocks // blocks_per_task + 1
            first_blocks = session.range(0, tasks * blocks_per_task, blocks_per_task, tasks)
            schema = to_arrow_schema(StructType.fromDDL(of.schema))
            read = partial(_read, database_url, snapshot, of, schema, blocks_per_task)
            rows[name] = first_blocks.mapInArrow(read, of.schema)
        counts = run(connection.fetch(PARKED, list(ALL)))
        yield ReadModels(rows, positions, {(topic, key): count for topic, key, count in counts})


@contextmanager
def _transaction(database_url: str) -> Iterator[tuple[asyncpg.Connection, Callable[..., Any]]]:
    """Yields a connection in a transaction that sees one moment, and what waits for its coroutines."""
    with asyncio.Runner() as runner:
        try:
            connection = runner.run(_connect(database_url))
        except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise DatabaseUnreachable(f"the read models' database cannot be reached: {error}") from error
        try:
            yield connection, runner.run
        except asyncpg.UndefinedTableError as error:
            raise DatabaseUnreachable(f"the database has no read models: {error}") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            reason = f"the read models cannot be read, check DAYBOOK_DATABASE_URL: {error}"
            raise DatabaseUnreachable(reason) from error
        finally:
            runner.run(connection.close())


async def _connect(database_url: str, snapshot: str = "") -> asyncpg.Connection:
    connection = await asyncpg.connect(database_url, timeout=REQUEST_SECONDS)
    await connection.transaction(isolation="repeatable_read", readonly=True).start()
    if snapshot:
        await connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    return connection


async def _positions(connection: asyncpg.Connection) -> Mapping[str, Offsets]:
    positions: dict[str, dict[str, dict[int, int]]] = {name: {} for name in ROWS}
    for read_model, topic, partition, offset in await connection.fetch(POSITIONS, list(ROWS)):
        positions[read_model].setdefault(topic, {})[partition] = offset
    return positions


def _read(
    database_url: str,
    snapshot: str,
    of: Rows,
    schema: pa.Schema,
    blocks: int,
    first_blocks: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows in so many blocks from each of these on."""
    with asyncio.Runner() as runner:
        connection = runner.run(_connect(database_url, snapshot))
        try:
            for first in (number for batch in first_blocks for number in batch.column(0).to_pylist()):
                cursor = runner.run(_cursor(connection, of, first, first + blocks))
                while records := runner.run(cursor.fetch(ROWS_PER_BATCH)):
                    columns = zip(*records, strict=True)
                    arrays = [
                        pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        finally:
            runner.run(connection.close())


async def _cursor(connection: asyncpg.Connection, of: Rows, first: int, end: int) -> asyncpg.cursor.Cursor:
    """Each version of a row has one place in the table, and the snapshot sees one version of each row."""
    blocks = f"ctid >= '({first},0)'::tid AND ctid < '({end},0)'::tid"
    return await connection.cursor(f"SELECT {of.columns} FROM {of.table} WHERE {blocks}")
