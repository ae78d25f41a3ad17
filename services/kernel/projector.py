"""The projection's transaction: fold rows, write rows and position, all or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from services.kernel.parking import BEHIND, apply_run, park
from services.kernel.read_model import (
    INFRASTRUCTURE,
    Arrival,
    Batch,
    Connection,
    EpochWentBack,
    PositionLost,
    ReadModel,
    SourceGap,
    TooManyParked,
    TopicPartition,
    VersionGap,
    fold_rows,
)

CHANNEL = "daybook"
EVERY_KEY = "*"
_NOTIFY_BYTES = 7000  # PostgreSQL's limit is 8000

_MOVE = """
WITH moved AS (
    UPDATE position p SET next_offset = n.next_offset, epoch = n.epoch, applied_at = now()
    FROM unnest($2::text[], $3::int[], $4::bigint[], $5::int[], $6::bigint[])
        AS n(topic, partition, next_offset, epoch, expected)
    WHERE p.read_model = $1 AND p.topic = n.topic AND p.partition = n.partition AND p.next_offset = n.expected
    RETURNING 1)
SELECT count(*), pg_notify($7, $8) FROM moved"""
_START = """
INSERT INTO position (read_model, topic, partition)
SELECT $1, n.topic, n.partition FROM unnest($2::text[], $3::int[]) AS n(topic, partition)
ON CONFLICT DO NOTHING"""
# one entry of the index for each key: a popular one may have 100,000s of events waiting
_HELD = """
SELECT n.key FROM unnest($2::text[]) AS n(key) WHERE n.key = (
    SELECT p.key FROM parked p WHERE p.read_model = $1 AND p.key >= n.key ORDER BY p.key LIMIT 1)"""
_ANY = "SELECT min(key) FROM parked WHERE read_model = $1"

Committed = Callable[[str, int, float], None]


class Position:
    """Where one read model stands in one partition, as far as this process knows."""

    def __init__(self, next_offset: int, epoch: int) -> None:
        self.next_offset = next_offset
        self.epoch = epoch


class Projector:
    """Applies batches to read models. Any exception out of `apply` must end the process.

    `max_parked_keys` bounds what one read model may park; `committed(read model, events, seconds)` is told of
    every transaction.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        models: Iterable[ReadModel[Any]],
        *,
        max_parked_keys: int = 100,
        committed: Committed = lambda *_: None,
    ) -> None:
        self._pool = pool
        self.models = {model.name: model for model in models}
        self.seek = 0
        self.positions: dict[str, dict[TopicPartition, Position]] = {name: {} for name in self.models}
        self._stores = {name: model.store(name) for name, model in self.models.items()}
        self._locks = {name: asyncio.Lock() for name in self.models}
        self._any_parked = dict.fromkeys(self.models, True)
        self._max_parked_keys = max_parked_keys
        self._committed = committed

    async def assigned(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to seek: the least position over a partition's read models. What was fetched is void."""
        wanted = set(places)
        await self.revoked()
        async with self._pool.acquire() as connection:
            for name, model in self.models.items():
                own = [place for place in wanted if place[0] in model.topics]
                await connection.execute(
                    _START, name, [topic for topic, _ in own], [number for _, number in own]
                )
                rows = await connection.fetch("SELECT * FROM position WHERE read_model = $1", name)
                self.positions[name] = {
                    place: Position(row["next_offset"], row["epoch"])
                    for row in rows
                    if (place := (row["topic"], row["partition"])) in wanted
                }
        return {
            place: min(at[place].next_offset for at in self.positions.values() if place in at)
            for place in wanted
        }

    async def revoked(self) -> None:
        """Forget the positions, after the transactions under way."""
        self.seek += 1
        for name, lock in self._locks.items():
            async with lock:
                self.positions[name] = {}

    async def apply(self, name: str, batches: Sequence[Batch]) -> int:
        """One transaction; returns after its commit, with the number of events."""
        async with self._locks[name]:
            current = [batch for batch in batches if batch.seek == self.seek]
            arrivals, moves = self._take(name, current)
            if not arrivals:
                return 0
            begun = time.perf_counter()
            try:
                await self._transaction(name, arrivals, moves, self._all_at_once)
            except Exception as error:
                # a version that somebody skipped looks like a gap until the slow path knows of it
                if isinstance(error, INFRASTRUCTURE) and not isinstance(error, VersionGap):
                    raise
                self._any_parked[name] = True  # a rebuild may have parked keys that this process never saw
                await self._transaction(name, arrivals, moves, self._one_by_one)
            self.positions[name].update(moves)
            self._committed(name, len(arrivals), time.perf_counter() - begun)
            return len(arrivals)

    def _take(
        self, name: str, batches: Sequence[Batch]
    ) -> tuple[list[Arrival], dict[TopicPartition, Position]]:
        """What is new to the read model, and the positions after it. Raises SourceGap, EpochWentBack."""
        arrivals: list[Arrival] = []
        moves: dict[TopicPartition, Position] = {}
        for batch in batches:
            at = moves.get(batch.place) or self.positions[name][batch.place]
            if batch.start > at.next_offset:
                raise SourceGap(
                    f"{name} {batch.place}: at {at.next_offset}, the source jumped to {batch.start}"
                )
            if batch.next_offset > at.next_offset:
                new, epoch = batch.arrivals(at.next_offset), at.epoch
                for arrival in new:
                    if arrival.event is not None:
                        epoch = _later(epoch, arrival, arrival.event.metadata.epoch)
                arrivals += new
                moves[batch.place] = Position(batch.next_offset, epoch)
        return arrivals, moves

    async def _transaction(
        self,
        name: str,
        arrivals: Sequence[Arrival],
        moves: Mapping[TopicPartition, Position],
        write: Callable[[Connection, str, Sequence[Arrival]], Awaitable[None]],
    ) -> None:
        keys = list({arrival.key for arrival in arrivals})
        async with self._pool.acquire() as connection, connection.transaction():
            moved = await connection.fetchval(
                _MOVE,
                name,
                [topic for topic, _ in moves],
                [partition for _, partition in moves],
                [move.next_offset for move in moves.values()],
                [move.epoch for move in moves.values()],
                [self.positions[name][place].next_offset for place in moves],
                CHANNEL,
                notification(name, keys),
            )
            if moved != len(moves):
                raise PositionLost(f"{name} {list(moves)}")
            live = await self._not_parked(connection, name, keys, arrivals)
            await write(connection, name, live)

    async def _not_parked(
        self, connection: Connection, name: str, keys: Sequence[str], arrivals: Sequence[Arrival]
    ) -> Sequence[Arrival]:
        """Parks what stands behind a parked event and answers the rest."""
        if not self._any_parked[name]:
            return arrivals
        held = {row["key"] for row in await connection.fetch(_HELD, name, keys)}
        self._any_parked[name] = bool(held) or await connection.fetchval(_ANY, name) is not None
        for arrival in arrivals:
            if arrival.key in held:
                await park(connection, name, arrival, BEHIND)
        return [arrival for arrival in arrivals if arrival.key not in held] if held else arrivals

    async def _all_at_once(self, connection: Connection, name: str, arrivals: Sequence[Arrival]) -> None:
        store = self._stores[name]
        rows = await store.load(connection, list({arrival.key for arrival in arrivals}))
        await store.save(connection, fold_rows(self.models[name], rows, arrivals))

    async def _one_by_one(self, connection: Connection, name: str, arrivals: Sequence[Arrival]) -> None:
        held: dict[str, str] = {}
        for arrival in arrivals:
            if arrival.key in held:
                await park(connection, name, arrival, BEHIND)
            elif (reason := await apply_run(connection, self.models[name], [arrival])) is not None:
                held[arrival.key] = reason
                await park(connection, name, arrival, reason)
        if held:
            self._any_parked[name] = True
            count = await connection.fetchval(
                "SELECT count(DISTINCT key) FROM parked WHERE read_model = $1", name
            )
            if count > self._max_parked_keys:
                key, reason = held.popitem()
                most = f"at most {self._max_parked_keys}"
                raise TooManyParked(f"{name}: {count} keys, {most}; the last is {key}: {reason}")


def notification(name: str, keys: Sequence[str]) -> str:
    """Read model and keys that changed, one a line; `*` where they are too many to name."""
    text = "\n".join((name, *keys))
    return text if len(text.encode()) <= _NOTIFY_BYTES else f"{name}\n{EVERY_KEY}"


def _later(epoch: int, arrival: Arrival, seen: int) -> int:
    if seen < epoch:
        where = f"{arrival.record.topic}/{arrival.record.partition}/{arrival.record.offset}"
        raise EpochWentBack(f"epoch {seen} behind {epoch} at {where}")
    return seen
