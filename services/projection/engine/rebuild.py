"""Replaces a live read model by its rebuilt tables without downtime (`bulk.py` fills them).

The new tables have their own schema, `<read model>_next`, and their own position. When it is close to the live
position, one transaction locks the live position (the projection waits), applies the rest and renames the schemas:
this takes milliseconds. A projection with the same code continues; one with other code finds another generation
and ends. The former tables stay as `<read model>_previous` until the next rebuild; `roll_back` brings
them up to date and switches back. Killed at any moment, both leave the live read model unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from services.kernel.log.journal import read_journal
from services.kernel.log.reader import partition_counts
from services.kernel.log.rule import Journal
from services.projection.engine.database import create_tables, pool
from services.projection.engine.position import CHANNEL, EVERY_KEY, JUDGE, about, require_own_tables
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Connection, OtherCode, ReadModel, TopicPartition
from services.projection.engine.replaced_log import require_positions_in_log
from services.projection.engine.runs import Prefetch, Runs
from services.projection.errors import ProjectionError

CLOSE = 2000  # so few events between the two positions may delay the projection
_LOCK = "SELECT pg_try_advisory_lock(hashtext($1))"
_POSITIONS = "SELECT * FROM position WHERE read_model = $1"
_TABLES_BY_NAME = ("parked", "skipped", "judged")
# The projection restarts if the rows honour other decisions or other code made them.
_GENERATION = """
WITH old AS (SELECT stream, version, event_id, digest, verdict FROM judged WHERE read_model = $1),
     new AS (SELECT stream, version, event_id, digest, verdict FROM judged WHERE read_model = $2)
UPDATE position SET generation = generation + 1 WHERE read_model = $1
    AND (EXISTS ((TABLE old EXCEPT TABLE new) UNION ALL (TABLE new EXCEPT TABLE old))
        OR obj_description(to_regnamespace($1), 'pg_namespace')
            IS DISTINCT FROM obj_description(to_regnamespace($2), 'pg_namespace'))"""
_SKIPPED = """
INSERT INTO skipped SELECT $2, key, version, reason, skipped_at FROM skipped WHERE read_model = $1"""
_COPY = """
INSERT INTO position (read_model, topic, partition, next_offset, epoch, applied_at, generation)
SELECT $2, topic, partition, next_offset, epoch, applied_at, generation FROM position WHERE read_model = $1"""


class AlreadyRebuilding(ProjectionError):
    """Another rebuild of this read model is under way."""


class NothingToRebuild(ProjectionError, LookupError):
    """The read model has no position: the projection has never run."""


class NothingToRollBack(ProjectionError, LookupError):
    """There are no previous tables, or other code made them."""


@dataclass(frozen=True)
class RebuildResult:
    """`events` applied; `parked`: keys parked in the new tables; `switch_seconds`: duration of the switch."""

    events: int
    parked: int
    switch_seconds: float


def successor_of(model: ReadModel[Any]) -> ReadModel[Any]:
    """Returns the same read model on the tables that will replace it."""
    return replace(model, name=f"{model.name}_next")


def previous_of(model: ReadModel[Any]) -> ReadModel[Any]:
    """Returns the same read model on the tables that were live before."""
    return replace(model, name=f"{model.name}_previous")


async def roll_back(
    kafka: str, database_url: str, model: ReadModel[Any], *, max_parked_keys: int = 100
) -> RebuildResult:
    """Brings the previous tables up to the live position and switches back; the live ones become the previous. Raises
    `NothingToRollBack`, `AlreadyRebuilding`, `LogReplaced`."""
    async with (
        pool(database_url, 2) as connections,
        fast_writers(database_url) as writers,
        rebuild_lock(connections, model) as connection,
    ):
        previous = previous_of(model)
        if not (stored := await positions(connection, previous)):
            raise NothingToRollBack(f"{model.name} has no previous tables")
        try:
            await require_own_tables(connection, [previous])
        except OtherCode as error:
            other = f"other code made the previous tables of {model.name}: roll back with that code"
            raise NothingToRollBack(other) from error
        live = {model.name: await positions(connection, model), previous.name: stored}
        await asyncio.to_thread(require_positions_in_log, kafka, live)
        journal = await asyncio.to_thread(read_journal, kafka)
        projector = Projector(writers, [previous], max_parked_keys=max_parked_keys, journal=lambda: journal)
        return await finish(kafka, connection, model, projector)


async def finish(
    kafka: str, connection: Connection, model: ReadModel[Any], projector: Projector
) -> RebuildResult:
    """Applies events to the projector's tables until they are the live ones."""
    (successor,) = projector.models.values()
    ends = await positions(connection, model)
    counts = await asyncio.to_thread(partition_counts, kafka)
    with Runs(kafka, await projector.assigned(ends, counts)) as runs:
        work = _Rebuild(projector, runs, successor.name)
        while await work.catch_up(ends) > CLOSE:
            ends = await positions(connection, model)
        return await _switch(connection, model, successor, work)


@dataclass
class _Rebuild:
    projector: Projector
    runs: Runs
    name: str
    events: int = 0

    async def catch_up(self, ends: Mapping[TopicPartition, int]) -> int:
        """Applies all events up to `ends`; returns their number."""
        before = self.events
        ahead = Prefetch(self.runs, self.projector, ends)
        reading = asyncio.create_task(asyncio.to_thread(ahead.next_batches))
        try:
            while batches := await reading:
                reading = asyncio.create_task(asyncio.to_thread(ahead.next_batches))
                self.events += await self.projector.apply(self.name, batches)
        finally:
            await asyncio.wait({reading})  # do not close the reader while a thread reads
        return self.events - before


@asynccontextmanager
async def rebuild_lock(connections: asyncpg.Pool[Any], model: ReadModel[Any]) -> AsyncIterator[Connection]:
    """Acquires the read model's rebuild lock. Raises `AlreadyRebuilding`."""
    async with connections.acquire() as connection:
        if not await connection.fetchval(_LOCK, f"daybook rebuild {model.name}"):
            raise AlreadyRebuilding(f"{model.name} is being rebuilt")
        yield connection


@asynccontextmanager
async def fast_writers(database_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    """Opens connections without synchronous commit: the switch makes everything durable."""
    async with pool(database_url, 1, {"synchronous_commit": "off"}) as writers:
        yield writers


async def begin(connection: Connection, model: ReadModel[Any], journal: Journal) -> dict[TopicPartition, int]:
    """Creates empty tables that honour the decisions; returns the live positions. Raises `NothingToRebuild`."""
    successor = successor_of(model)
    async with connection.transaction():
        await _drop(connection, successor.name)
        await connection.execute("DELETE FROM position WHERE read_model = $1", successor.name)
        await create_tables(connection, successor)
        await connection.execute(_SKIPPED, model.name, successor.name)
        judged = about(model, journal).items()
        await connection.executemany(JUDGE, [(successor.name, *entry, verdict) for entry, verdict in judged])
        tps = await positions(connection, model)
    if not tps:
        raise NothingToRebuild(f"{model.name} has no position yet: start the projection first")
    return tps


async def _switch(
    connection: Connection, model: ReadModel[Any], successor: ReadModel[Any], work: _Rebuild
) -> RebuildResult:
    previous, replaced = previous_of(model).name, f"{model.name}_replaced"
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with connection.transaction():
        ends = await positions(connection, model, lock=True)
        await work.catch_up(ends)
        if await positions(connection, successor, lock=True) != ends:
            raise RuntimeError(f"{successor.name} did not reach {ends}")
        if successor.name != previous:  # an operator may have skipped events in between
            await connection.execute("DELETE FROM skipped WHERE read_model = $1", successor.name)
            await connection.execute(_SKIPPED, model.name, successor.name)
        await connection.execute(_GENERATION, model.name, successor.name)
        await connection.execute(
            "DELETE FROM position WHERE read_model = ANY($1)", [successor.name, previous]
        )
        await connection.execute(_COPY, model.name, previous)
        await _rename(connection, model.name, replaced)
        await _rename(connection, successor.name, model.name)
        await _rename(connection, replaced, previous)
        parked = await connection.fetchval(
            "SELECT count(DISTINCT key) FROM parked WHERE read_model = $1", model.name
        )
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{model.name}\n{EVERY_KEY}")
    return RebuildResult(work.events, parked, loop.time() - started)


async def _rename(connection: Connection, old: str, new: str) -> None:
    """Renames a read model, also in the shared tables except positions. Drops what has the new name."""
    await _drop(connection, new)
    await connection.execute(f"ALTER SCHEMA {old} RENAME TO {new}")
    for table in _TABLES_BY_NAME:
        await connection.execute(f"UPDATE {table} SET read_model = $2 WHERE read_model = $1", old, new)


async def _drop(connection: Connection, name: str) -> None:
    await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    for table in _TABLES_BY_NAME:
        await connection.execute(f"DELETE FROM {table} WHERE read_model = $1", name)


async def positions(
    connection: Connection, model: ReadModel[Any], *, lock: bool = False
) -> dict[TopicPartition, int]:
    """Returns a read model's positions; `lock` locks them until the end of the transaction."""
    rows = await connection.fetch(f"{_POSITIONS} FOR UPDATE" if lock else _POSITIONS, model.name)
    return {(row["topic"], row["partition"]): row["next_offset"] for row in rows}
