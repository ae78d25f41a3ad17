"""Build read models again from the first event, in bulk: several from one reading, beside the live ones.

The projection's own code, with less to do: the log is read and decoded once for all of them; a step is so big
that most entities are written once; the tables begin empty, so a key is looked up only when it was written
before; indexes that no row needs are made at the end; and Python does not search for cycles meanwhile.
`rebuild.py` has the last stretch and the change of places.
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
    Ahead,
    Rebuilt,
    Stretch,
    alone,
    begin,
    finish,
    hasty,
    positions,
    successor_of,
)
from services.projection.engine.replaced_log import require_within_the_log
from services.projection.engine.runs import Runs

STEP = 10_000  # events of one partition that are held in memory, decoded, at a time
INDEX_SECONDS = 3600.0
_OPTIONAL_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE schemaname = $1 AND indexname NOT IN (
    SELECT conname FROM pg_constraint WHERE connamespace = $1::regnamespace)"""


Progress = Callable[[int, int], None]


Opened = Callable[[Mapping[TopicPartition, int]], AbstractContextManager[Stretch]]
"""Opens a stretch at the given starts."""


@dataclass(frozen=True)
class Lake:
    """A copy of the log's beginning, complete up to `ends`.

    It holds no headers, so nothing can be parked from it: there, a read model goes on from the log.
    """

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
) -> dict[str, Rebuilt]:
    """Build `models` anew, from the lake as far as it goes, else from the log; what came of each, by name.

    `progress` is told offsets done and to do. Killed at any moment, it leaves the live tables as they were.
    Raises `AlreadyRebuilding`, `NothingToRebuild`, `AnotherLog`.
    """
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(pool(database_url, len(models) + 2))
        writers = await stack.enter_async_context(hasty(database_url))
        held: dict[str, Connection] = {}
        live: dict[str, dict[TopicPartition, int]] = {}
        for model in models:
            held[model.name] = await stack.enter_async_context(alone(connections, model))
            live[model.name] = await positions(held[model.name], model)
        await asyncio.to_thread(require_within_the_log, kafka, live)
        journal = await asyncio.to_thread(read_journal, kafka)
        ends: dict[TopicPartition, int] = {}
        for model in models:
            ends = _least(ends, await begin(held[model.name], model, journal))
        parkable = 0 if lake else max_parked_keys
        fresh = [_fresh(model) for model in models]
        bulk = Projector(writers, fresh, max_parked_keys=parkable, journal=lambda: journal)
        if lake:
            ends = {place: min(end, lake.ends.get(place, 0)) for place, end in ends.items()}
        starts = await bulk.assigned(ends, await asyncio.to_thread(partition_counts, kafka))
        opened = lake.open(starts) if lake else Runs(kafka, starts, STEP)
        async with _without_indexes(held, fresh):
            with opened as stretch, _no_search_for_cycles():
                counted = await _Filling(bulk, stretch, bool(lake), progress).fill(ends)
        done: dict[str, Rebuilt] = {}
        for model in models:
            own = [successor_of(model)]
            rest = Projector(writers, own, max_parked_keys=max_parked_keys, journal=lambda: journal)
            rebuilt = await finish(kafka, held[model.name], model, rest)
            events = rebuilt.events + counted[own[0].name]
            done[model.name] = replace(rebuilt, events=events)
        return done


@dataclass
class _Filling:
    projector: Projector
    stretch: Stretch
    from_lake: bool
    progress: Progress

    async def fill(self, ends: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Apply the stretch; events by read model."""
        counted = dict.fromkeys(self.projector.models, 0)
        reached = dict.fromkeys(ends, 0)
        going = set(counted)
        ahead = Ahead(self.stretch, self.projector, ends)
        reading = asyncio.create_task(asyncio.to_thread(ahead.decoded))
        try:
            while (batches := await reading) and going:
                reading = asyncio.create_task(asyncio.to_thread(ahead.decoded))
                for name in sorted(going):
                    try:
                        counted[name] += await self.projector.apply(name, self._of(name, batches))
                    except TooManyParked:
                        if not self.from_lake:
                            raise
                        going.discard(name)
                reached |= {batch.place: batch.next_offset for batch in batches}
                self.progress(sum(reached.values()), sum(ends.values()))
        finally:
            await asyncio.wait({reading})  # the reader must not be closed under a thread that reads
        return counted

    def _of(self, name: str, batches: Sequence[Batch]) -> list[Batch]:
        topics = self.projector.models[name].topics
        return [batch for batch in batches if batch.place[0] in topics]


class _FirstSeen(Generic[Row]):
    """A store on tables that began empty: what it never wrote it need not look for."""

    def __init__(self, store: Store[Row]) -> None:
        self._store = store
        self._written: set[str] = set()

    async def load(self, connection: Connection, keys: Sequence[str]) -> Mapping[str, Versioned[Row]]:
        known = [key for key in keys if key in self._written]
        return await self._store.load(connection, known) if known else {}

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[Row]]) -> None:
        self._written.update(rows)
        await self._store.save(connection, rows)

    async def forget(self, connection: Connection, key: str, row: Row) -> None:
        await self._store.forget(connection, key, row)
        self._written.discard(key)


def _fresh(model: ReadModel[Any]) -> ReadModel[Any]:
    """The successor; all stores of one schema are one, for the slow path makes its own."""
    successor = successor_of(model)
    store: Store[Any] = _FirstSeen(model.store(successor.name))
    return replace(successor, store=lambda _schema: store)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@asynccontextmanager
async def _without_indexes(
    held: Mapping[str, Connection], successors: Sequence[ReadModel[Any]]
) -> AsyncIterator[None]:
    """Those that no key needs come after the rows."""
    connection = next(iter(held.values()))
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
    return {
        place: min(known[place] for known in (ends, others) if place in known) for place in {*ends, *others}
    }
