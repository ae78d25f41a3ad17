"""The projection's transaction: fold rows, write rows and position, all or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from services.kernel.log.rule import Journal
from services.projection.engine.parking import apply_run, count_foreign, park, skipped_versions
from services.projection.engine.position import Position, begin, honoured, move
from services.projection.engine.read_model import (
    INFRASTRUCTURE,
    Arrival,
    Batch,
    Connection,
    Contents,
    ForeignRecord,
    ReadModel,
    SourceGap,
    TooManyParked,
    TopicPartition,
)
from services.projection.engine.row_fold import BEHIND, Stop, fold

# one entry of the index for each key: a popular one may have 100,000s of events waiting
_HELD = """
SELECT n.key FROM unnest($2::text[]) AS n(key) WHERE n.key = (
    SELECT p.key FROM parked p WHERE p.read_model = $1 AND p.key >= n.key ORDER BY p.key LIMIT 1)"""
_ANY = "SELECT min(key) FROM parked WHERE read_model = $1"
_FAILED = "SELECT count(DISTINCT key) FROM parked WHERE read_model = $1 AND kind = 'failed'"
_NO_DECISIONS = Journal()

Committed = Callable[[str, int, float], None]
SkippedForeign = Callable[[Sequence[ForeignRecord]], None]


class Projector:
    """Applies batches to read models. Any exception out of `apply` must end the process.

    `max_parked_keys` bounds the keys that one read model's code may fail on; 0: nothing may be parked, for
    whatever reason. `committed(read model, events, seconds)` is called after every transaction,
    `skipped(records)` for foreign records that no read model met before. `journal()` are the decisions
    that are recorded; `honoured` are those that the rows of each read model honour (`decisions.py` of the
    projection brings them up to date).
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        models: Iterable[ReadModel[Any]],
        *,
        max_parked_keys: int = 100,
        committed: Committed = lambda *_: None,
        skipped: SkippedForeign = lambda _: None,
        journal: Callable[[], Journal] = lambda: _NO_DECISIONS,
    ) -> None:
        self._pool = pool
        self.models = {model.name: model for model in models}
        self.seek = 0
        self.positions: dict[str, dict[TopicPartition, Position]] = {name: {} for name in self.models}
        self._stores = {name: model.store(name) for name, model in self.models.items()}
        self.locks = {name: asyncio.Lock() for name in self.models}
        self._max_parked_keys = max_parked_keys
        self._committed, self._skipped, self._journal = committed, skipped, journal
        self.partitions: Mapping[str, int] = {}
        self.honoured: dict[str, Journal] = {}

    async def assigned(
        self, places: Iterable[TopicPartition], partitions: Mapping[str, int]
    ) -> dict[TopicPartition, int]:
        """Where to seek: the least position over a partition's read models. What was fetched is void.

        `partitions` is how many each topic has.
        """
        wanted, self.partitions = set(places), partitions
        await self.revoked()
        async with self._pool.acquire() as connection:
            latest = self._journal()
            for name, model in self.models.items():
                self.positions[name] = await begin(connection, model, wanted)
                self.honoured[name] = await honoured(connection, model, latest)
        return {
            place: min(at[place].next_offset for at in self.positions.values() if place in at)
            for place in wanted
        }

    async def revoked(self) -> None:
        """Forget the positions, after the transactions under way."""
        self.seek += 1
        for name, lock in self.locks.items():
            async with lock:
                self.positions[name] = {}

    async def apply(self, name: str, batches: Sequence[Batch]) -> int:
        """One transaction; returns after its commit, with the number of events."""
        async with self.locks[name]:
            current = [batch for batch in batches if batch.seek == self.seek]
            found, moves = self._take(name, current)
            if not moves:
                return 0
            arrivals = [arrival for contents in found for arrival in contents.arrivals]
            foreign = [record for contents in found for record in contents.foreign]
            begun = time.perf_counter()
            try:
                fresh = await self._transaction(name, arrivals, foreign, moves, self._all_at_once)
            except Exception as error:
                if isinstance(error, INFRASTRUCTURE):
                    raise
                fresh = await self._transaction(name, arrivals, foreign, moves, self._one_by_one)
            self.positions[name].update(moves)
            self._committed(name, len(arrivals), time.perf_counter() - begun)
            if fresh:
                self._skipped(fresh)
            return len(arrivals)

    def read(self, name: str, batch: Batch, at: int, epoch: int) -> Contents:
        """What the batch's records from offset `at` on are to a read model, where `epoch` is open before."""
        return batch.read(at, epoch, self.partitions[batch.place[0]], self.honoured[name])

    def _take(
        self, name: str, batches: Sequence[Batch]
    ) -> tuple[list[Contents], dict[TopicPartition, Position]]:
        """What is new to the read model, and the positions after it. Raises SourceGap."""
        found: list[Contents] = []
        moves: dict[TopicPartition, Position] = {}
        for batch in batches:
            at = moves.get(batch.place) or self.positions[name][batch.place]
            if batch.start > at.next_offset:
                jump = f"at {at.next_offset}, the source jumped to {batch.start}"
                raise SourceGap(f"{name} {batch.place}: {jump}")
            if batch.next_offset > at.next_offset:
                new = self.read(name, batch, at.next_offset, at.epoch)
                found.append(new)
                moves[batch.place] = Position(batch.next_offset, new.epoch, at.generation)
        return found, moves

    async def _transaction(
        self,
        name: str,
        arrivals: Sequence[Arrival],
        foreign: Sequence[ForeignRecord],
        moves: Mapping[TopicPartition, Position],
        write: Callable[[Connection, str, Sequence[Arrival]], Awaitable[Sequence[tuple[Arrival, Stop]]]],
    ) -> list[ForeignRecord]:
        """The foreign records that are counted for the first time."""
        keys = list({arrival.key for arrival in arrivals})
        async with self._pool.acquire() as connection, connection.transaction():
            await move(connection, name, self.positions[name], moves, keys)
            if live := await self._not_parked(connection, name, keys, arrivals):
                await self._park(connection, name, await write(connection, name, live))
            return await count_foreign(connection, foreign) if foreign else []

    async def _not_parked(
        self, connection: Connection, name: str, keys: Sequence[str], arrivals: Sequence[Arrival]
    ) -> Sequence[Arrival]:
        """Parks what stands behind a parked event and returns the rest.

        Asked every time: a rebuild or a decision may have parked keys that this process never saw.
        """
        if not arrivals or await connection.fetchval(_ANY, name) is None:
            return arrivals
        held = {row["key"] for row in await connection.fetch(_HELD, name, keys)}
        await self._park(connection, name, [(one, BEHIND) for one in arrivals if one.key in held])
        return [arrival for arrival in arrivals if arrival.key not in held] if held else arrivals

    async def _all_at_once(
        self, connection: Connection, name: str, arrivals: Sequence[Arrival]
    ) -> Sequence[tuple[Arrival, Stop]]:
        model, store = self.models[name], self._stores[name]
        rows = await store.load(connection, list({arrival.key for arrival in arrivals}))
        folded = fold(model, rows, arrivals)
        if folded.parked:  # behind a version that somebody skipped an event looks like a fork
            stopped = list({arrival.key for arrival, _ in folded.parked})
            if skipped := await skipped_versions(connection, name, stopped):
                folded = fold(model, rows, arrivals, skipped)
        if folded.rows:
            await store.save(connection, folded.rows)
        return folded.parked

    async def _one_by_one(
        self, connection: Connection, name: str, arrivals: Sequence[Arrival]
    ) -> Sequence[tuple[Arrival, Stop]]:
        parked: dict[str, list[tuple[Arrival, Stop]]] = {}
        for arrival in arrivals:
            if arrival.key in parked:
                parked[arrival.key].append((arrival, BEHIND))
            elif (stop := (await apply_run(connection, self.models[name], [arrival]))[1]) is not None:
                parked[arrival.key] = [(arrival, stop)]
        return [one for waiting in parked.values() for one in waiting]

    async def _park(self, connection: Connection, name: str, parked: Sequence[tuple[Arrival, Stop]]) -> None:
        for arrival, stop in parked:
            await park(connection, name, arrival, stop)
        ours = [one for one in parked if one[1].kind == "failed" or not self._max_parked_keys]
        if ours:
            count = max(1, await connection.fetchval(_FAILED, name))
            if count > self._max_parked_keys:
                (*_, (last, stop)), most = ours, f"at most {self._max_parked_keys}"
                raise TooManyParked(f"{name}: {count} keys, {most}; the last is {last.key}: {stop.reason}")
