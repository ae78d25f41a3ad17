"""How a read model that is built again takes the live one's place without downtime (`bulk.py` fills it).

The new tables live in a schema of their own, `<read model>_next`, with a position of their own. When they
have almost reached the live position, that is held (the projection waits), the rest is applied, and the
schemas change their names: one transaction, milliseconds. Positions are then equal, so a projection with the
same code goes on as if nothing had happened. One with other code finds another generation and ends.
The tables that were live stay as `<read model>_previous`, with their position, until the next rebuild;
`roll_back` brings them up to the live position and back in place by the same change of names.
Killed at any moment, both leave the live read model as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import asyncpg

from services.kernel.log.journal import read_journal
from services.kernel.log.reader import partition_counts
from services.kernel.log.rule import Journal
from services.projection.engine.database import create_tables, pool
from services.projection.engine.position import CHANNEL, EVERY_KEY, JUDGE, about, require_own_tables
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Batch, Connection, OtherCode, ReadModel, TopicPartition
from services.projection.engine.replaced_log import require_within_the_log
from services.projection.engine.runs import Runs

CLOSE = 2000  # events between the two positions that are few enough to hold the projection up for
_LOCK = "SELECT pg_try_advisory_lock(hashtext($1))"
_POSITIONS = "SELECT * FROM position WHERE read_model = $1"
_TABLES_BY_NAME = ("parked", "skipped", "judged")
# The projection knows what the rows honoured, and which code made them: it begins anew where either changes.
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


class AlreadyRebuilding(RuntimeError):
    """Another rebuild of this read model is under way."""


class NothingToRebuild(LookupError):
    """The read model has no position: the projection has never run."""


class NothingToRollBack(LookupError):
    """There are no previous tables, or other code than this made them."""


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


def previous_of(model: ReadModel[Any]) -> ReadModel[Any]:
    """The same read model in the tables that were live before."""
    return replace(model, name=f"{model.name}_previous")


async def roll_back(
    kafka: str, database_url: str, model: ReadModel[Any], *, max_parked_keys: int = 100
) -> Rebuilt:
    """Bring the previous tables up to the live position and back in place; the live ones become the previous.

    Raises `NothingToRollBack`, `AlreadyRebuilding`, `AnotherLog`.
    """
    async with (
        pool(database_url, 2) as connections,
        hasty(database_url) as writers,
        alone(connections, model) as connection,
    ):
        previous = previous_of(model)
        if not (stands := await positions(connection, previous)):
            raise NothingToRollBack(f"{model.name} has no previous tables")
        try:
            await require_own_tables(connection, [previous])
        except OtherCode as error:
            other = f"other code than this made the previous tables of {model.name}: roll back with that code"
            raise NothingToRollBack(other) from error
        live = {model.name: await positions(connection, model), previous.name: stands}
        await asyncio.to_thread(require_within_the_log, kafka, live)
        journal = await asyncio.to_thread(read_journal, kafka)
        projector = Projector(writers, [previous], max_parked_keys=max_parked_keys, journal=lambda: journal)
        return await finish(kafka, connection, model, projector)


async def finish(kafka: str, connection: Connection, model: ReadModel[Any], projector: Projector) -> Rebuilt:
    """Go on from where the projector's tables are until they are the live ones."""
    (successor,) = projector.models.values()
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
        await connection.execute("DELETE FROM position WHERE read_model = $1", successor.name)
        await create_tables(connection, successor)
        await connection.execute(_SKIPPED, model.name, successor.name)
        judged = about(model, journal).items()
        await connection.executemany(JUDGE, [(successor.name, *one, verdict) for one, verdict in judged])
        places = await positions(connection, model)
    if not places:
        raise NothingToRebuild(f"{model.name} has no position yet: start the projection first")
    return places


async def _flip(
    connection: Connection, model: ReadModel[Any], successor: ReadModel[Any], work: _Rebuild
) -> Rebuilt:
    previous, replaced = previous_of(model).name, f"{model.name}_replaced"
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with connection.transaction():
        ends = await positions(connection, model, hold=True)
        await work.catch_up(ends)
        if await positions(connection, successor, hold=True) != ends:
            raise RuntimeError(f"{successor.name} did not reach {ends}")
        if successor.name != previous:  # an operator may have skipped events meanwhile
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
    return Rebuilt(work.events, parked, loop.time() - begun)


async def _rename(connection: Connection, old: str, new: str) -> None:
    """Also what stands under the name in the shared tables, positions apart. What has the new name goes."""
    await _drop(connection, new)
    await connection.execute(f"ALTER SCHEMA {old} RENAME TO {new}")
    for table in _TABLES_BY_NAME:
        await connection.execute(f"UPDATE {table} SET read_model = $2 WHERE read_model = $1", old, new)


async def _drop(connection: Connection, name: str) -> None:
    await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    for table in _TABLES_BY_NAME:
        await connection.execute(f"DELETE FROM {table} WHERE read_model = $1", name)


async def positions(
    connection: Connection, model: ReadModel[Any], *, hold: bool = False
) -> dict[TopicPartition, int]:
    """Where a read model stands; `hold` keeps it there until the transaction's end."""
    rows = await connection.fetch(f"{_POSITIONS} FOR UPDATE" if hold else _POSITIONS, model.name)
    return {(row["topic"], row["partition"]): row["next_offset"] for row in rows}
