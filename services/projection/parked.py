"""What waits behind an event that could not be applied: list it, look at it, try again, leave it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from services.kernel.envelope import Malformed, Metadata, read_headers
from services.kernel.parking import apply_run
from services.kernel.projector import CHANNEL, notification
from services.kernel.read_model import Connection, ReadModel, arrive

PORTION = 500  # events of a key that are applied in one transaction, for which the projection waits
# from key to key through the index: there are few, but one may have 100,000s of events waiting
PARKED_KEYS = """
WITH RECURSIVE held AS (
    (SELECT read_model, key FROM parked ORDER BY read_model, key LIMIT 1)
    UNION ALL
    SELECT following.* FROM held, LATERAL (
        SELECT p.read_model, p.key FROM parked p WHERE (p.read_model, p.key) > (held.read_model, held.key)
        ORDER BY p.read_model, p.key LIMIT 1) AS following)
SELECT read_model, count(*) AS keys FROM held GROUP BY read_model"""
_LIST = """
SELECT DISTINCT ON (read_model, key) read_model, key, version, topic, partition, "offset", reason, parked_at,
       count(*) OVER (PARTITION BY read_model, key) AS events
FROM parked WHERE $1::text IS NULL OR read_model = $1
ORDER BY read_model, key, topic, partition, "offset" """
_OF_KEY = """
SELECT * FROM parked WHERE read_model = $1 AND key = $2 ORDER BY topic, partition, "offset" LIMIT $3"""
_DRAINED = """
DELETE FROM parked WHERE read_model = $1 AND key = $2 AND (topic, partition, "offset") <= ($3, $4, $5)"""
_THIS = 'read_model = $1 AND topic = $2 AND partition = $3 AND "offset" = $4'
_COUNT = "SELECT count(*) FROM parked WHERE read_model = $1 AND key = $2"
_SKIP = """
INSERT INTO skipped (read_model, key, version, reason, topic, partition, "offset")
VALUES ($1, $2, $3, $4, $5, $6, $7)"""


class NothingParked(LookupError):
    """No event of that key is parked in that read model."""


@dataclass(frozen=True)
class ParkedKey:
    """A key that waits; version, position and reason are those of its first event; times are micros UTC."""

    read_model: str
    key: str
    events: int
    version: int
    topic: str
    partition: int
    offset: int
    reason: str
    parked_at: int


@dataclass(frozen=True)
class ParkedEvent:
    """`metadata` is None where the headers cannot be read; `body` is the event's fields, if they can."""

    topic: str
    partition: int
    offset: int
    version: int
    reason: str
    parked_at: int
    metadata: Metadata | None
    body: Mapping[str, Any] | None
    value: bytes | None


@dataclass(frozen=True)
class Drained:
    """What a retry did: events applied, events left, and why the first of those still cannot be applied."""

    applied: int
    left: int
    reason: str


class StoredRecord(NamedTuple):
    """A parked record as the log had it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


async def parked_keys(connection: Connection, read_model: str | None = None) -> list[ParkedKey]:
    rows = await connection.fetch(_LIST, read_model)
    return [ParkedKey(**{name: row[name] for name in ParkedKey.__dataclass_fields__}) for row in rows]


async def show(connection: Connection, read_model: str, key: str) -> list[ParkedEvent]:
    """The key's events, in order. Raises `NothingParked`."""
    rows = await connection.fetch(_OF_KEY, read_model, key, None)
    if not rows:
        raise NothingParked(f"{read_model} has nothing parked for {key}")
    return [_event(row) for row in rows]


async def retry(connection: Connection, model: ReadModel[Any], key: str) -> Drained:
    """Apply the key's events in order, up to the first that still cannot be. Raises `NothingParked`.

    The projection may run: it waits while this holds the read model's position, a portion at a time. What
    is left keeps the key parked, so the order holds; an interrupted retry keeps what it has done.
    """
    await _first(connection, model, key)
    return await _drain(connection, model, key)


async def skip(connection: Connection, model: ReadModel[Any], key: str, reason: str) -> Drained:
    """Leave the key's first event out of the read model for good, and retry those behind it.

    By its version, which the next one must follow; a record that has none by its place in the log.
    """
    async with connection.transaction():
        await _hold(connection, model)
        first = await _first(connection, model, key)
        at = (None, None, None) if first["version"] else _place(first)
        await connection.execute(_SKIP, model.name, key, first["version"], reason, *at)
        await connection.execute(_DRAINED, model.name, key, *_place(first))
    return await _drain(connection, model, key)


async def _first(connection: Connection, model: ReadModel[Any], key: str) -> Any:
    row = await connection.fetchrow(_OF_KEY, model.name, key, 1)
    if row is None:
        raise NothingParked(f"{model.name} has nothing parked for {key}")
    return row


async def _hold(connection: Connection, model: ReadModel[Any]) -> None:
    await connection.execute("SELECT 1 FROM position WHERE read_model = $1 FOR UPDATE", model.name)


async def _drain(connection: Connection, model: ReadModel[Any], key: str) -> Drained:
    applied = 0
    while True:
        async with connection.transaction():
            await _hold(connection, model)
            rows = await connection.fetch(_OF_KEY, model.name, key, PORTION)
            done, failure = await _apply(connection, model, rows)
            if done:
                await connection.execute(_DRAINED, model.name, key, *_place(rows[done - 1]))
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, notification(model.name, [key]))
            applied += done
            if failure:
                where = (model.name, *_place(rows[done]))
                await connection.execute(f"UPDATE parked SET reason = $5 WHERE {_THIS}", *where, failure)
                left = await connection.fetchval(_COUNT, model.name, key)
                return Drained(applied, left, failure)
        if len(rows) < PORTION:
            return Drained(applied, 0, "")


async def _apply(connection: Connection, model: ReadModel[Any], rows: Sequence[Any]) -> tuple[int, str]:
    """How many of a key's events were applied, and why the next one could not be."""
    run = [arrive(_record(row)) for row in rows]
    if not run or await apply_run(connection, model, run) is None:
        return len(run), ""
    for done, arrival in enumerate(run):  # one of them cannot be applied: those before it can
        if (failure := await apply_run(connection, model, [arrival])) is not None:
            return done, failure
    return len(run), ""


def _place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _record(row: Mapping[str, Any]) -> StoredRecord:
    headers = msgspec.msgpack.decode(row["headers"], type=list[tuple[str, bytes | None]])
    return StoredRecord(*_place(row), row["record_key"], row["value"], headers)


def _event(row: Mapping[str, Any]) -> ParkedEvent:
    record = _record(row)
    event = arrive(record).event
    try:
        metadata = read_headers(record.headers)
    except Malformed:
        metadata = None
    return ParkedEvent(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        version=row["version"],
        reason=row["reason"],
        parked_at=row["parked_at"],
        metadata=metadata,
        body=None if event is None else msgspec.to_builtins(event.body),
        value=record.value,
    )
