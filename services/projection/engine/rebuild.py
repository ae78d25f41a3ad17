"""Builds read models again from the first event, and replaces the live ones without downtime.

`replay_into` uses the projection's code and saves work: it reads and decodes the log once for all models; a step is
so large that most entities are written once; the tables begin empty, so it loads only keys that it wrote before; it
builds indexes that no row needs at the end; and it turns Python's garbage collector off.

The new tables have their own schema, `<read model>_next`, and their own position. When it is close to the live
position, one transaction locks the live position (the projection waits), applies the rest and renames the schemas:
this takes milliseconds. A projection with the same code continues; one with other code finds another generation
and ends. The former tables stay as `<read model>_previous` until the next rebuild; `roll_back` brings
them up to date and switches back. Killed at any moment, both leave the live read model unchanged.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic

import asyncpg

from services.kernel.log.control import read_journal
from services.kernel.log.reader import partition_counts
from services.kernel.log.rule import Journal
from services.projection import ProjectionError
from services.projection.engine.database import create_tables, pool
from services.projection.engine.position import (
    CHANNEL,
    EVERY_KEY,
    JUDGE,
    about,
    require_own_tables,
    require_positions_in_log,
)
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import (
    Connection,
    OtherCode,
    ReadModel,
    Row,
    Store,
    TopicPartition,
    Versioned,
)
from services.projection.engine.runs import BatchReader, Progress, Runs, catch_up

STEP = 10_000  # events of one partition decoded in memory at a time
INDEX_SECONDS = 3600.0
CLOSE = 2000  # so few events between the two positions may delay the projection
_FAST = {"synchronous_commit": "off"}  # of those who write: the switch makes everything durable
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
_OPTIONAL_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE schemaname = $1 AND indexname NOT IN (
    SELECT conname FROM pg_constraint WHERE connamespace = $1::regnamespace)"""


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


Opened = Callable[[Mapping[TopicPartition, int]], AbstractContextManager[BatchReader]]
"""Opens a reader at the given start offsets."""


@dataclass(frozen=True)
class Lake:
    """A copy of the log's beginning, complete up to `ends`. It is read without headers, so no key can be parked from
    it: there, a read model continues from the log."""

    open: Opened
    ends: Mapping[TopicPartition, int]


def successor_of(model: ReadModel[Any]) -> ReadModel[Any]:
    """Returns the same read model on the tables that will replace it."""
    return replace(model, name=f"{model.name}_next")


def previous_of(model: ReadModel[Any]) -> ReadModel[Any]:
    """Returns the same read model on the tables that were live before."""
    return replace(model, name=f"{model.name}_previous")


async def replay_into(
    kafka: str,
    database_url: str,
    models: Sequence[ReadModel[Any]],
    *,
    lake: Lake | None = None,
    max_parked_keys: int = 100,
    progress: Progress = lambda _done, _total: None,
) -> dict[str, RebuildResult]:
    """Rebuilds `models` from the lake as far as it goes, else from the log; returns the result of each, by name.

    `progress` gets the offsets done and in total. If killed, it leaves the live tables unchanged.
    Raises `AlreadyRebuilding`, `NothingToRebuild`, `LogReplaced`.
    """
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(pool(database_url, len(models) + 2))
        writers = await stack.enter_async_context(pool(database_url, 1, _FAST))
        locked: dict[str, Connection] = {}
        live: dict[str, dict[TopicPartition, int]] = {}
        for model in models:
            locked[model.name] = await stack.enter_async_context(rebuild_lock(connections, model))
            live[model.name] = await positions(locked[model.name], model)
        await asyncio.to_thread(require_positions_in_log, kafka, live)
        journal = await asyncio.to_thread(read_journal, kafka)
        ends: dict[TopicPartition, int] = {}
        for model in models:
            ends = _least(ends, await begin(locked[model.name], model, journal))
        parkable = 0 if lake else max_parked_keys
        successors = [_fresh(model) for model in models]
        bulk = Projector(writers, successors, max_parked_keys=parkable, journal=lambda: journal)
        if lake:
            ends = {partition: min(end, lake.ends.get(partition, 0)) for partition, end in ends.items()}
        starts = await bulk.assigned(ends, await asyncio.to_thread(partition_counts, kafka))
        opened = lake.open(starts) if lake else Runs(kafka, starts, STEP)
        async with _deferred_indexes(locked, successors):
            with opened as reader, _without_garbage_collection():
                counts = await catch_up(bulk, reader, ends, leave_parked=bool(lake), progress=progress)
        results: dict[str, RebuildResult] = {}
        for model in models:
            own = [successor_of(model)]
            rest = Projector(writers, own, max_parked_keys=max_parked_keys, journal=lambda: journal)
            rebuilt = await finish(kafka, locked[model.name], model, rest)
            results[model.name] = replace(rebuilt, events=rebuilt.events + counts[own[0].name])
        return results


async def roll_back(
    kafka: str, database_url: str, model: ReadModel[Any], *, max_parked_keys: int = 100
) -> RebuildResult:
    """Brings the previous tables up to the live position and switches back; the live ones become the previous. Raises
    `NothingToRollBack`, `AlreadyRebuilding`, `LogReplaced`."""
    async with (
        pool(database_url, 2) as connections,
        pool(database_url, 1, _FAST) as writers,
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
        events = applied = (await catch_up(projector, runs, ends))[successor.name]
        while applied > CLOSE:
            ends = await positions(connection, model)
            applied = (await catch_up(projector, runs, ends))[successor.name]
            events += applied
        return await _switch(connection, model, projector, runs, events)


@asynccontextmanager
async def rebuild_lock(connections: asyncpg.Pool[Any], model: ReadModel[Any]) -> AsyncIterator[Connection]:
    """Acquires the read model's rebuild lock. Raises `AlreadyRebuilding`."""
    async with connections.acquire() as connection:
        if not await connection.fetchval(_LOCK, f"daybook rebuild {model.name}"):
            raise AlreadyRebuilding(f"{model.name} is being rebuilt")
        yield connection


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
    connection: Connection, model: ReadModel[Any], projector: Projector, runs: Runs, events: int
) -> RebuildResult:
    (successor,) = projector.models.values()
    previous, replaced = previous_of(model).name, f"{model.name}_replaced"
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with connection.transaction():
        ends = await positions(connection, model, lock=True)
        events += (await catch_up(projector, runs, ends))[successor.name]
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
    return RebuildResult(events, parked, loop.time() - started)


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


class _WriteThroughStore(Generic[Row]):
    """A store on tables that began empty: it loads only keys that it has written."""

    def __init__(self, store: Store[Row]) -> None:
        self._store = store
        self._written: set[str] = set()

    async def load(self, connection: Connection, keys: Sequence[str]) -> Mapping[str, Versioned[Row]]:
        offsets = [key for key in keys if key in self._written]
        return await self._store.load(connection, offsets) if offsets else {}

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[Row]]) -> None:
        self._written.update(rows)
        await self._store.save(connection, rows)

    async def forget(self, connection: Connection, key: str, row: Row) -> None:
        await self._store.forget(connection, key, row)
        self._written.discard(key)


def _fresh(model: ReadModel[Any]) -> ReadModel[Any]:
    """Returns the successor, with one store per schema: the slow path would create its own."""
    successor = successor_of(model)
    store: Store[Any] = _WriteThroughStore(model.store(successor.name))
    return replace(successor, store=lambda _schema: store)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@asynccontextmanager
async def _deferred_indexes(
    locked: Mapping[str, Connection], successors: Sequence[ReadModel[Any]]
) -> AsyncIterator[None]:
    """Drops the indexes that no key needs, and creates them again after the rows."""
    connection = next(iter(locked.values()))
    later: list[str] = []
    for successor in successors:
        for row in await connection.fetch(_OPTIONAL_INDEXES, successor.name):
            await connection.execute(f"DROP INDEX {successor.name}.{row['indexname']}")
            later.append(row["indexdef"])
    yield
    for definition in later:
        await connection.execute(definition, timeout=INDEX_SECONDS)


def _least(
    ends: Mapping[TopicPartition, int], others: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {tp: min(offsets[tp] for offsets in (ends, others) if tp in offsets) for tp in {*ends, *others}}
