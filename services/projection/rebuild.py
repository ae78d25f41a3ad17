"""How a read model that is built again takes the live one's place without downtime (`bulk.py` fills it).

The new tables live in a schema of their own, `<read model>_next`, with a position of their own. When they
have almost reached the live position, that is held (the projection waits), the rest is applied, and the
schemas change their names: one transaction, milliseconds. Positions are then equal, so the projection goes
on as if nothing had happened. Killed at any moment, it leaves the live read model as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import asyncpg

from services.kernel.log_reader import partition_counts
from services.kernel.log_rule import Journal
from services.kernel.position import CHANNEL, EVERY_KEY, JUDGE, about
from services.kernel.projector import Projector
from services.kernel.read_model import Batch, Connection, ReadModel, TopicPartition
from services.projection.database import create_tables, pool
from services.projection.runs import Runs

CLOSE = 2000  # events between the two positions that are few enough to hold the projection up for
_LOCK = "SELECT pg_try_advisory_lock(hashtext($1))"
_POSITIONS = "SELECT * FROM position WHERE read_model = $1"
_TABLES_BY_NAME = ("position", "parked", "skipped", "judged")
# The projection knows the decisions that the rows honoured before: it begins anew where they are others now.
_OTHER_DECISIONS = """
WITH old AS (SELECT stream, version, event_id, digest, verdict FROM judged WHERE read_model = $1),
     new AS (SELECT stream, version, event_id, digest, verdict FROM judged WHERE read_model = $2)
UPDATE position SET decisions = decisions + 1 WHERE read_model = $1
    AND EXISTS ((TABLE old EXCEPT TABLE new) UNION ALL (TABLE new EXCEPT TABLE old))"""


class AlreadyRebuilding(RuntimeError):
    """Another rebuild of this read model is under way."""


class NothingToRebuild(LookupError):
    """The read model has no position: the projection has never run."""


@dataclass(frozen=True)
class Rebuilt:
    """`events` applied; `parked` keys that wait in the new tables; `held` seconds that the switch took."""

    events: int
    parked: int
    held: float


class Stretch(Protocol):
    """Some of the history: `fetch` gives the next batches below `ends`, none when all is given."""

    def fetch(self, ends: Mapping[TopicPartition, int], seek: int) -> list[Batch]: ...


def successor_of(model: ReadModel[Any]) -> ReadModel[Any]:
    """The same read model in the tables that will take its place."""
    return replace(model, name=f"{model.name}_next")


async def finish(kafka: str, connection: Connection, model: ReadModel[Any], projector: Projector) -> Rebuilt:
    """Go on from where the new tables are until they are the live ones."""
    successor = successor_of(model)
    ends = await positions(connection, model)
    counts = await asyncio.to_thread(partition_counts, kafka)
    with Runs(kafka, await projector.assigned(ends, counts)) as runs:
        work = _Rebuild(projector, runs, successor.name)
        while await work.catch_up(ends) > CLOSE:
            ends = await positions(connection, model)
        return await _flip(connection, model, successor, work)


@dataclass
class _Rebuild:
    projector: Projector
    runs: Runs
    name: str
    events: int = 0

    async def catch_up(self, ends: Mapping[TopicPartition, int]) -> int:
        """Apply everything up to `ends`; the number of events."""
        before = self.events
        ahead = Ahead(self.runs, self.projector, ends)
        reading = asyncio.create_task(asyncio.to_thread(ahead.decoded))
        try:
            while batches := await reading:
                reading = asyncio.create_task(asyncio.to_thread(ahead.decoded))
                self.events += await self.projector.apply(self.name, batches)
        finally:
            await asyncio.wait({reading})  # the reader must not be closed under a thread that reads
        return self.events - before


class Ahead:
    """Reads and decodes the next batches, in a thread, while PostgreSQL writes those before. All read models
    of the projector begin at the same positions, on the same decisions."""

    def __init__(self, stretch: Stretch, projector: Projector, ends: Mapping[TopicPartition, int]) -> None:
        self._stretch, self._projector, self._ends = stretch, projector, ends
        at = projector.positions.values()
        self._epochs = {place: one.epoch for model in at for place, one in model.items()}

    def decoded(self) -> list[Batch]:
        """The next batches; none when the ends are reached."""
        batches = self._stretch.fetch(self._ends, self._projector.seek)
        for batch in batches:
            name = next(iter(self._projector.models))
            read = self._projector.read(name, batch, batch.start, self._epochs[batch.place])
            self._epochs[batch.place] = read.epoch
        return batches


@asynccontextmanager
async def alone(connections: asyncpg.Pool[Any], model: ReadModel[Any]) -> AsyncIterator[Connection]:
    """Hold the read model's lock. Raises `AlreadyRebuilding`."""
    async with connections.acquire() as connection:
        if not await connection.fetchval(_LOCK, f"daybook rebuild {model.name}"):
            raise AlreadyRebuilding(f"{model.name} is being rebuilt")
        yield connection


@asynccontextmanager
async def hasty(database_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    """Nothing is lost if the server crashes meanwhile: the flip makes all of it durable."""
    async with pool(database_url, 1, {"synchronous_commit": "off"}) as writers:
        yield writers


async def begin(connection: Connection, model: ReadModel[Any], journal: Journal) -> dict[TopicPartition, int]:
    """Empty tables that honour the decisions, whatever a killed rebuild left; where the live ones stand.

    Raises `NothingToRebuild`.
    """
    successor = successor_of(model)
    async with connection.transaction():
        await _drop(connection, successor.name)
        await create_tables(connection, successor)
        await connection.execute(
            "INSERT INTO skipped SELECT $2, key, version, reason, skipped_at "
            "FROM skipped WHERE read_model = $1",
            *(model.name, successor.name),
        )
        judged = about(model, journal).items()
        await connection.executemany(JUDGE, [(successor.name, *one, verdict) for one, verdict in judged])
        places = await positions(connection, model)
    if not places:
        raise NothingToRebuild(f"{model.name} has no position yet: start the projection first")
    return places


async def _flip(
    connection: Connection, model: ReadModel[Any], successor: ReadModel[Any], work: _Rebuild
) -> Rebuilt:
    previous = f"{model.name}_previous"
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with connection.transaction():
        ends = await positions(connection, model, hold=True)
        await work.catch_up(ends)
        if await positions(connection, successor, hold=True) != ends:
            raise RuntimeError(f"{successor.name} did not reach {ends}")
        await connection.execute(f"ALTER SCHEMA {model.name} RENAME TO {previous}")
        await connection.execute(f"ALTER SCHEMA {successor.name} RENAME TO {model.name}")
        await connection.execute(_OTHER_DECISIONS, model.name, successor.name)
        for table in ("parked", "judged"):
            await connection.execute(f"DELETE FROM {table} WHERE read_model = $1", model.name)
            await connection.execute(
                f"UPDATE {table} SET read_model = $1 WHERE read_model = $2", model.name, successor.name
            )
        for table in _TABLES_BY_NAME:
            await connection.execute(f"DELETE FROM {table} WHERE read_model = $1", successor.name)
        parked = await connection.fetchval(
            "SELECT count(DISTINCT key) FROM parked WHERE read_model = $1", model.name
        )
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{model.name}\n{EVERY_KEY}")
    held = loop.time() - begun
    await connection.execute(f"DROP SCHEMA {previous} CASCADE")
    return Rebuilt(work.events, parked, held)


async def _drop(connection: Connection, name: str) -> None:
    await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    await connection.execute(f"DROP SCHEMA IF EXISTS {name.removesuffix('_next')}_previous CASCADE")
    for table in _TABLES_BY_NAME:
        await connection.execute(f"DELETE FROM {table} WHERE read_model = $1", name)


async def positions(
    connection: Connection, model: ReadModel[Any], *, hold: bool = False
) -> dict[TopicPartition, int]:
    """Where a read model stands; `hold` keeps it there until the transaction's end."""
    rows = await connection.fetch(f"{_POSITIONS} FOR UPDATE" if hold else _POSITIONS, model.name)
    return {(row["topic"], row["partition"]): row["next_offset"] for row in rows}
