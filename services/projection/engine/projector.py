"""The projection's transaction: folds events, writes rows and position, all or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from services.kernel.log.rule import Journal
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
from services.projection.engine.row_fold import (
    BEHIND,
    Stop,
    apply_run,
    count_foreign,
    fold,
    park,
    skipped_versions,
)

# Reads one index entry per key: one key may have 100,000s of parked events.
_PARKED_KEYS = """
SELECT n.key FROM unnest($2::text[]) AS n(key) WHERE n.key = (
    SELECT p.key FROM parked p WHERE p.read_model = $1 AND p.key >= n.key ORDER BY p.key LIMIT 1)"""
_ANY = "SELECT min(key) FROM parked WHERE read_model = $1"
_FAILED = "SELECT count(DISTINCT key) FROM parked WHERE read_model = $1 AND kind = 'failed'"
_NO_DECISIONS = Journal()

OnCommit = Callable[[str, int, float], None]
OnForeign = Callable[[Sequence[ForeignRecord]], None]


class Projector:
    """Applies batches to read models. Any exception out of `apply` must end the process.

    `max_parked_keys` bounds the keys on which one read model's code may fail; 0: nothing may be parked for any
    reason. It calls `committed(read model, events, seconds)` after every transaction and `skipped(records)` for
    new foreign records. `journal()` returns the recorded decisions; `honoured` are those that the rows of each
    read model honour (`decisions.py` applies the others).
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        models: Iterable[ReadModel[Any]],
        *,
        max_parked_keys: int = 100,
        committed: OnCommit = lambda *_: None,
        skipped: OnForeign = lambda _: None,
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
        self, tps: Iterable[TopicPartition], partitions: Mapping[str, int]
    ) -> dict[TopicPartition, int]:
        """Returns the offsets to seek to: the least position of a partition's read models. Drops fetched batches.
        `partitions` is the number of partitions by topic. If the partitions are revoked while PostgreSQL is read,
        nothing is kept: the next assignment reads the positions again."""
        assigned, self.partitions = set(tps), partitions
        await self.revoked()
        seek = self.seek
        positions: dict[str, dict[TopicPartition, Position]] = {}
        decided: dict[str, Journal] = {}
        async with self._pool.acquire() as connection:
            latest = self._journal()
            for name, model in self.models.items():
                positions[name] = await begin(connection, model, assigned)
                decided[name] = await honoured(connection, model, latest)
        if self.seek == seek:
            self.positions.update(positions)
            self.honoured.update(decided)
        return {
            tp: min(position[tp].next_offset for position in positions.values() if tp in position)
            for tp in assigned
        }

    async def revoked(self) -> None:
        """Forgets the positions after the running transactions."""
        self.seek += 1
        for name, lock in self.locks.items():
            async with lock:
                self.positions[name] = {}

    async def apply(self, name: str, batches: Sequence[Batch]) -> int:
        """Runs one transaction; returns the number of events after its commit."""
        async with self.locks[name]:
            own = self.positions[name]
            current = [batch for batch in batches if batch.seek == self.seek and batch.tp in own]
            contents, moves = self._read_new(name, current)
            if not moves:
                return 0
            arrivals = [arrival for part in contents for arrival in part.arrivals]
            foreign = [record for part in contents for record in part.foreign]
            begun = time.perf_counter()
            try:
                new_foreign = await self._transaction(name, arrivals, foreign, moves, self._all_at_once)
            except Exception as error:
                if isinstance(error, INFRASTRUCTURE):
                    raise
                new_foreign = await self._transaction(name, arrivals, foreign, moves, self._key_by_key)
            self.positions[name].update(moves)
            self._committed(name, len(arrivals), time.perf_counter() - begun)
            if new_foreign:
                self._skipped(new_foreign)
            return len(arrivals)

    def read(self, name: str, batch: Batch, position: int, epoch: int) -> Contents:
        """Returns the contents of the batch from offset `position` on; `epoch` is open before it."""
        return batch.read(position, epoch, self.partitions[batch.tp[0]], self.honoured[name])

    def _read_new(
        self, name: str, batches: Sequence[Batch]
    ) -> tuple[list[Contents], dict[TopicPartition, Position]]:
        """Returns what is new to the read model, and the positions after it. Raises `SourceGap`."""
        contents: list[Contents] = []
        moves: dict[TopicPartition, Position] = {}
        for batch in batches:
            position = moves.get(batch.tp) or self.positions[name][batch.tp]
            if batch.start > position.next_offset:
                jump = f"at {position.next_offset}, the source jumped to {batch.start}"
                raise SourceGap(f"{name} {batch.tp}: {jump}")
            if batch.next_offset > position.next_offset:
                new = self.read(name, batch, position.next_offset, position.epoch)
                contents.append(new)
                moves[batch.tp] = Position(batch.next_offset, new.epoch, position.generation)
        return contents, moves

    async def _transaction(
        self,
        name: str,
        arrivals: Sequence[Arrival],
        foreign: Sequence[ForeignRecord],
        moves: Mapping[TopicPartition, Position],
        write: Callable[[Connection, str, Sequence[Arrival]], Awaitable[Sequence[tuple[Arrival, Stop]]]],
    ) -> list[ForeignRecord]:
        """Returns the foreign records that are counted for the first time."""
        keys = list({arrival.key for arrival in arrivals})
        async with self._pool.acquire() as connection, connection.transaction():
            await move(connection, name, self.positions[name], moves, keys)
            if live := await self._not_parked(connection, name, keys, arrivals):
                await self._park(connection, name, await write(connection, name, live))
            return await count_foreign(connection, foreign) if foreign else []

    async def _not_parked(
        self, connection: Connection, name: str, keys: Sequence[str], arrivals: Sequence[Arrival]
    ) -> Sequence[Arrival]:
        """Parks events behind a parked event and returns the others. It queries every time: a rebuild or a decision
        may have parked keys that this process never saw."""
        if not arrivals or await connection.fetchval(_ANY, name) is None:
            return arrivals
        parked_keys = {row["key"] for row in await connection.fetch(_PARKED_KEYS, name, keys)}
        await self._park(
            connection, name, [(entry, BEHIND) for entry in arrivals if entry.key in parked_keys]
        )
        return (
            [arrival for arrival in arrivals if arrival.key not in parked_keys] if parked_keys else arrivals
        )

    async def _all_at_once(
        self, connection: Connection, name: str, arrivals: Sequence[Arrival]
    ) -> Sequence[tuple[Arrival, Stop]]:
        model, store = self.models[name], self._stores[name]
        rows = await store.load(connection, list({arrival.key for arrival in arrivals}))
        folded = fold(model, rows, arrivals)
        if folded.parked:  # after a skipped version an event looks like a fork
            stopped = list({arrival.key for arrival, _ in folded.parked})
            if skipped := await skipped_versions(connection, name, stopped):
                folded = fold(model, rows, arrivals, skipped)
        if folded.rows:
            await store.save(connection, folded.rows)
        return folded.parked

    async def _key_by_key(
        self, connection: Connection, name: str, arrivals: Sequence[Arrival]
    ) -> Sequence[tuple[Arrival, Stop]]:
        runs: dict[str, list[Arrival]] = {}
        for arrival in arrivals:
            runs.setdefault(arrival.key, []).append(arrival)
        model = self.models[name]
        return [entry for run in runs.values() for entry in await apply_run(connection, model, run)]

    async def _park(self, connection: Connection, name: str, parked: Sequence[tuple[Arrival, Stop]]) -> None:
        for arrival, stop in parked:
            await park(connection, name, arrival, stop)
        own_failures = [entry for entry in parked if entry[1].kind == "failed" or not self._max_parked_keys]
        if own_failures:
            count = max(1, await connection.fetchval(_FAILED, name))
            if count > self._max_parked_keys:
                (*_, (last, stop)), most = own_failures, f"at most {self._max_parked_keys}"
                raise TooManyParked(f"{name}: {count} keys, {most}; the last is {last.key}: {stop.reason}")
