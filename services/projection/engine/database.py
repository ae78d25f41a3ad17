"""PostgreSQL: connections, numbered migrations, and a schema of tables for each read model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from services.projection.engine.read_model import Connection, ReadModel, Stopped

MIGRATIONS = Path(__file__).parent / "migrations"
CLOSE_SECONDS = 5.0
COMMAND_SECONDS = 60.0
QUERY_SECONDS = 10.0
# With optional filters, a generic plan would use no index.
QUERY_SETTINGS = {"plan_cache_mode": "force_custom_plan"}
# Otherwise a projection frozen in a transaction would block its successor until its host ends. One that is frozen while
# it sends a statement is not idle: only the whole transaction's time ends it, before the successor's command does.
WRITER_SETTINGS = {"idle_in_transaction_session_timeout": "10s", "transaction_timeout": "45s"}
_FINGERPRINT = "SELECT obj_description(to_regnamespace($1), 'pg_namespace')"
_LOCK = 0x6461_7962  # any number, the same for all migrations
_MICROS_TO_2000 = 946_684_800_000_000


class NotMigrated(Stopped):
    """The database lacks tables of this code."""


async def prepare(connection: Connection) -> None:
    """Sets the codecs of a connection: times are int micros UTC, JSON is plain values."""
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        encoder=lambda micros: (micros - _MICROS_TO_2000,),
        decoder=lambda value: value[0] + _MICROS_TO_2000,
        format="tuple",
    )
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: b"\x01" + msgspec.json.encode(value),
        decoder=lambda value: msgspec.json.decode(value[1:]),
        format="binary",
    )


@asynccontextmanager
async def pool(
    url: str,
    size: int,
    server_settings: Mapping[str, str] | None = None,
    command_seconds: float = COMMAND_SECONDS,
) -> AsyncIterator[asyncpg.Pool[Any]]:
    """Opens at most `size` connections. Closing never hangs, even if the server does."""
    connections = await asyncpg.create_pool(
        url,
        min_size=1,
        max_size=size,
        init=prepare,
        command_timeout=command_seconds,
        server_settings=dict(server_settings or {}),
    )
    try:
        yield connections
    finally:
        try:
            await asyncio.wait_for(connections.close(), CLOSE_SECONDS)
        except TimeoutError:
            connections.terminate()


def query_connection(connections: asyncpg.Pool[Any]) -> Any:
    """Returns a context manager for a pool connection. Raises TimeoutError if none becomes free in time."""
    return connections.acquire(timeout=QUERY_SECONDS)


@asynccontextmanager
async def migration_lock(connection: Connection) -> AsyncIterator[None]:
    """Runs one transaction; only one process migrates at a time."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        yield


async def migrate(connection: Connection, models: Iterable[ReadModel[Any]]) -> list[int]:
    """Applies missing migrations and creates missing tables; returns the numbers applied. Tables without a
    fingerprint count as made by the running code."""
    applied = []
    async with migration_lock(connection):
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migration "
            "(number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        done = {row["number"] for row in await connection.fetch("SELECT number FROM migration")}
        for file in sorted(MIGRATIONS.glob("[0-9][0-9][0-9]_*.sql")):
            if (number := int(file.name[:3])) not in done:
                await connection.execute(file.read_text("utf-8"))
                await connection.execute(
                    "INSERT INTO migration (number, name) VALUES ($1, $2)", number, file.stem
                )
                applied.append(number)
        for model in models:
            if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", model.name):
                await create_tables(connection, model)
            elif await connection.fetchval(_FINGERPRINT, model.name) is None:
                await _sign(connection, model)
    return applied


async def require_migrated(connection: Connection, models: Iterable[ReadModel[Any]]) -> None:
    """Raises `NotMigrated`. What serves and what projects may not create tables."""
    expected = {int(file.name[:3]) for file in MIGRATIONS.glob("[0-9][0-9][0-9]_*.sql")}
    done: set[int] = set()
    if await connection.fetchval("SELECT to_regclass('migration') IS NOT NULL"):
        done = {row["number"] for row in await connection.fetch("SELECT number FROM migration")}
    names = [model.name for model in models]
    absent = await connection.fetch(
        "SELECT name FROM unnest($1::text[]) AS own(name) WHERE to_regnamespace(name) IS NULL", names
    )
    if missing := [*map(str, sorted(expected - done)), *(row["name"] for row in absent)]:
        raise NotMigrated(
            f"the database lacks {', '.join(missing)}: `./daybook up` creates it, "
            "as does `python -m services.projection.main migrate`"
        )


async def create_tables(connection: Connection, model: ReadModel[Any]) -> None:
    """Creates a schema named after the read model, with tables and fingerprint, in the caller's transaction."""
    await connection.execute(f"CREATE SCHEMA {model.name}")
    await connection.execute(f"SET LOCAL search_path TO {model.name}")
    await connection.execute(model.ddl)
    await connection.execute("SET LOCAL search_path TO DEFAULT")
    await _sign(connection, model)


async def _sign(connection: Connection, model: ReadModel[Any]) -> None:
    await connection.execute(f"COMMENT ON SCHEMA {model.name} IS '{model.fingerprint}'")
