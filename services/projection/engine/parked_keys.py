"""Keys that wait behind an event that was not applied: list, show, try again, leave the event out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from services.kernel.log.rule import Event, Judged, digest_of, stream_of
from services.kernel.record.envelope import Malformed, Metadata, read_headers
from services.projection.engine.parking import apply_run
from services.projection.engine.position import CHANNEL, hold, notification
from services.projection.engine.read_model import Arrival, Connection, ReadModel, arrive

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
SELECT DISTINCT ON (read_model, key) read_model, key, version, topic, partition, "offset",
       kind, reason, parked_at, count(*) OVER (PARTITION BY read_model, key) AS events
FROM parked WHERE read_model = $1 OR $1 IS NULL AND right(read_model, 9) <> '_previous'
ORDER BY read_model, key, topic, partition, "offset" """
_OF_KEY = """
SELECT * FROM parked WHERE read_model = $1 AND key = $2 ORDER BY topic, partition, "offset" LIMIT $3"""
_DRAINED = """
DELETE FROM parked WHERE read_model = $1 AND key = $2 AND (topic, partition, "offset") <= ($3, $4, $5)"""
_THIS = 'read_model = $1 AND topic = $2 AND partition = $3 AND "offset" = $4'
_COUNT = "SELECT count(*) FROM parked WHERE read_model = $1 AND key = $2"
_LEFT = f"UPDATE parked SET kind = $5, reason = $6 WHERE {_THIS}"
_SKIP = "INSERT INTO skipped (read_model, key, version, reason) VALUES ($1, $2, $3, $4)"
_JUDGED = "SELECT version, event_id, digest, verdict FROM judged WHERE read_model = $1 AND stream = $2"
_UNREADABLE = "SELECT read_model, key FROM parked WHERE kind = 'unreadable' AND read_model = ANY($1)"
# What was parked before foreign records were passed over, and has no envelope.
_NO_EVENT = Event(Metadata("", "", "", "", 0, "", "", 0), "foreign")


class NothingParked(LookupError):
    """No event of that key is parked in that read model."""


class StreamForked(Exception):
    """The log has two records at one version, or a gap: to leave a version out would not mend that."""


@dataclass(frozen=True)
class ParkedKey:
    """A key that waits; version, position, kind and reason are those of its first event; times are micros
    UTC. `kind` is failed, forked or unreadable."""

    read_model: str
    key: str
    events: int
    version: int
    topic: str
    partition: int
    offset: int
    kind: str
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
    """Apply the key's events in order, up to the first that still cannot be.

    The projection may run: it waits while this holds the read model's position, a portion at a time. What
    is left keeps the key parked, so the order holds; an interrupted retry keeps what it has done.
    Raises `NothingParked`, `OtherCode`.
    """
    await _first(connection, model, key)
    return await _drain(connection, model, key)


async def skip(connection: Connection, model: ReadModel[Any], key: str, reason: str) -> Drained:
    """Leave the key's first event out of the read model for good, and retry those behind it.

    By its version, which the next one must follow. Raises `NothingParked`, `StreamForked`, `OtherCode`.
    """
    async with connection.transaction():
        await hold(connection, model)
        first = await _first(connection, model, key)
        if first["kind"] == "forked":
            raise StreamForked(stream_of(first["topic"], key))
        await connection.execute(_SKIP, model.name, key, first["version"], reason)
        await connection.execute(_DRAINED, model.name, key, *_place(first))
    return await _drain(connection, model, key)


async def retry_readable(connection: Connection, models: Sequence[ReadModel[Any]]) -> list[str]:
    """Retry the keys that waited for a reader of their first event, where this one is; which those are."""
    by_name = {model.name: model for model in models}
    done = []
    for name, key in await connection.fetch(_UNREADABLE, list(by_name)):
        row = await connection.fetchrow(_OF_KEY, name, key, 1)
        first = None if row is None else _arrival(row, {})
        if first is not None and (first.event is not None or first.kind is _NO_EVENT):
            await _drain(connection, by_name[name], key)
            done.append(f"{name}:{key}")
    return done


async def _first(connection: Connection, model: ReadModel[Any], key: str) -> Any:
    row = await connection.fetchrow(_OF_KEY, model.name, key, 1)
    if row is None:
        raise NothingParked(f"{model.name} has nothing parked for {key}")
    return row


async def _drain(connection: Connection, model: ReadModel[Any], key: str) -> Drained:
    applied = 0
    while True:
        async with connection.transaction():
            await hold(connection, model)
            verdicts = await _verdicts(connection, model, key)
            rows = await connection.fetch(_OF_KEY, model.name, key, PORTION)
            run = [_arrival(row, verdicts) for row in rows]
            done, stop = await apply_run(connection, model, run) if run else (0, None)
            if done:
                await connection.execute(_DRAINED, model.name, key, *_place(rows[done - 1]))
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, notification(model.name, [key]))
            applied += done
            if stop is not None:
                await connection.execute(_LEFT, model.name, *_place(rows[done]), *stop)
                left = await connection.fetchval(_COUNT, model.name, key)
                return Drained(applied, left, stop.reason)
        if len(rows) < PORTION:
            return Drained(applied, 0, "")


async def _verdicts(connection: Connection, model: ReadModel[Any], key: str) -> Mapping[Judged, Any]:
    """The decisions on the key's stream that the read model honours."""
    stream = f"{model.stream}/{key}"
    rows = await connection.fetch(_JUDGED, model.name, stream)
    return {Judged(stream, *row[:3]): row["verdict"] for row in rows}


def _arrival(row: Mapping[str, Any], verdicts: Mapping[Judged, Any]) -> Arrival:
    record = _record(row)
    try:
        metadata = read_headers(record.headers)
    except Malformed:
        return Arrival(record, row["key"], _NO_EVENT, None, row["reason"])
    stream = stream_of(record.topic, metadata.subject)
    judged = Judged(stream, metadata.version, metadata.id, digest_of(record.value))
    return arrive(record, Event(metadata, verdicts.get(judged)))


def _place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _record(row: Mapping[str, Any]) -> StoredRecord:
    headers = msgspec.msgpack.decode(row["headers"], type=list[tuple[str, bytes | None]])
    return StoredRecord(*_place(row), row["record_key"], row["value"], headers)


def _event(row: Mapping[str, Any]) -> ParkedEvent:
    record, _, kind, event, _ = _arrival(row, {})
    return ParkedEvent(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        version=row["version"],
        reason=row["reason"],
        parked_at=row["parked_at"],
        metadata=None if kind is _NO_EVENT else kind.metadata,
        body=None if event is None else msgspec.to_builtins(event.body),
        value=record.value,
    )
