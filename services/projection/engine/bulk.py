"""Rebuilds read models from the first event, in bulk: several in one pass, beside the live tables.

It uses the projection's code and saves work: it reads and decodes the log once for all models; a step is so large
that most entities are written once; the tables begin empty, so it loads only keys that it wrote before; it builds
indexes that no row needs at the end; and it turns Python's garbage collector off. `rebuild.py` applies the last
events and switches the tables.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic

from services.kernel.log.journal import read_journal
from services.kernel.log.reader import partition_counts
from services.projection.engine.database import pool
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import (
    Batch,
    Connection,
    ReadModel,
    Row,
    Store,
    TooManyParked,
    TopicPartition,
    Versioned,
)
from services.projection.engine.rebuild import (
    RebuildResult,
    begin,
    fast_writers,
    finish,
    positions,
    rebuild_lock,
    successor_of,
)
from services.projection.engine.replaced_log import require_positions_in_log
from services.projection.engine.runs import BatchReader, Prefetch, Runs

STEP = 10_000  # events of one partition decoded in memory at a time
INDEX_SECONDS = 3600.0
_OPTIONAL_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE schemaname = $1 AND indexname NOT IN (
    SELECT conname FROM pg_constraint WHERE connamespace = $1::regnamespace)"""


Progress = Callable[[int, int], None]


Opened = Callable[[Mapping[TopicPartition, int]], AbstractContextManager[BatchReader]]
"""Opens a reader at the given start offsets."""


@dataclass(frozen=True)
class Lake:
    """A copy of the log's beginning, complete up to `ends`. It has no headers, so no key can be parked from it:
    there, a read model continues from the log."""

    open: Opened
    ends: Mapping[TopicPartition, int]


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
        writers = await stack.enter_async_context(fast_writers(database_url))
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
                counts = await _Filling(bulk, reader, bool(lake), progress).fill(ends)
        results: dict[str, RebuildResult] = {}
        for model in models:
            own = [successor_of(model)]
            rest = Projector(writers, own, max_parked_keys=max_parked_keys, journal=lambda: journal)
            rebuilt = await finish(kafka, locked[model.name], model, rest)
            events = rebuilt.events + counts[own[0].name]
            results[model.name] = replace(rebuilt, events=events)
        return results


@dataclass
class _Filling:
    projector: Projector
    reader: BatchReader
    from_lake: bool
    progress: Progress

    async def fill(self, ends: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Applies all batches up to `ends`; returns the events by read model."""
        counts = dict.fromkeys(self.projector.models, 0)
        reached = dict.fromkeys(ends, 0)
        active = set(counts)
        ahead = Prefetch(self.reader, self.projector, ends)
        reading = asyncio.create_task(asyncio.to_thread(ahead.next_batches))
        try:
            while (batches := await reading) and active:
                reading = asyncio.create_task(asyncio.to_thread(ahead.next_batches))
                for name in sorted(active):
                    try:
                        counts[name] += await self.projector.apply(name, self._of(name, batches))
                    except TooManyParked:
                        if not self.from_lake:
                            raise
                        active.discard(name)
                reached |= {batch.tp: batch.next_offset for batch in batches}
                self.progress(sum(reached.values()), sum(ends.values()))
        finally:
            await asyncio.wait({reading})  # do not close the reader while a thread reads
        return counts

    def _of(self, name: str, batches: Sequence[Batch]) -> list[Batch]:
        topics = self.projector.models[name].topics
        return [batch for batch in batches if batch.tp[0] in topics]


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
