"""Parked keys: lists and shows them, retries their events, skips an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from services.kernel.log.rule import Event, Judged, identity, stream_of
from services.kernel.record.envelope import Malformed, Metadata, read_headers
from services.projection import ProjectionError
from services.projection.engine.position import CHANNEL, lock_positions, notification
from services.projection.engine.read_model import Arrival, Connection, ReadModel, Record, decode_arrival
from services.projection.engine.row_fold import apply_run

PORTION = 500  # events of a key per transaction; the projection waits for it
# Steps from key to key in the index: there are few keys, but one may have 100,000s of parked events.
PARKED_KEYS = """
WITH RECURSIVE waiting AS (
    (SELECT read_model, key FROM parked ORDER BY read_model, key LIMIT 1)
    UNION ALL
    SELECT following.* FROM waiting, LATERAL (
        SELECT p.read_model, p.key FROM parked p WHERE (p.read_model, p.key) > (waiting.read_model, waiting.key)
        ORDER BY p.read_model, p.key LIMIT 1) AS following)
SELECT read_model, count(*) AS keys FROM waiting GROUP BY read_model"""
_LIST = """
SELECT DISTINCT ON (read_model, key) read_model, key, version, topic, partition, "offset",
       kind, reason, parked_at, count(*) OVER (PARTITION BY read_model, key) AS events
FROM parked WHERE read_model = $1 OR $1 IS NULL AND right(read_model, 9) <> '_previous'
ORDER BY read_model, key, topic, partition, "offset" """
_OF_KEY = """
SELECT * FROM parked WHERE read_model = $1 AND key = $2 ORDER BY topic, partition, "offset" LIMIT $3"""
_REMOVE = """
DELETE FROM parked WHERE read_model = $1 AND key = $2 AND (topic, partition, "offset") <= ($3, $4, $5)"""
_THIS = 'read_model = $1 AND topic = $2 AND partition = $3 AND "offset" = $4'
_COUNT = "SELECT count(*) FROM parked WHERE read_model = $1 AND key = $2"
_LEFT = f"UPDATE parked SET kind = $5, reason = $6 WHERE {_THIS}"
_SKIP = "INSERT INTO skipped (read_model, key, version, reason) VALUES ($1, $2, $3, $4)"
_JUDGED = "SELECT version, event_id, digest, verdict FROM judged WHERE read_model = $1 AND stream = $2"
_UNREADABLE = "SELECT read_model, key FROM parked WHERE kind = 'unreadable' AND read_model = ANY($1)"
# Parked by an older version, without an envelope: foreign records are skipped now.
_NO_EVENT = Event(Metadata("", "", "", "", 0, "", "", 0), "foreign")


class NothingParked(ProjectionError, LookupError):
    """No event of that key is parked in that read model."""


class StreamForked(ProjectionError):
    """The log has two records at one version, or a gap: skipping a version does not repair it."""


@dataclass(frozen=True)
class ParkedKey:
    """A parked key; version, position, kind and reason are those of its first event; times are micros
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
    """`metadata` is None if the headers cannot be read; `body` is the event's fields, if they can be decoded."""

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
class RetryResult:
    """The result of a retry: events applied, events left, and why the first of those cannot be applied."""

    applied: int
    left: int
    reason: str


async def parked_keys(connection: Connection, read_model: str | None = None) -> list[ParkedKey]:
    rows = await connection.fetch(_LIST, read_model)
    return [ParkedKey(**{name: row[name] for name in ParkedKey.__dataclass_fields__}) for row in rows]


async def show(connection: Connection, model: ReadModel[Any], key: str) -> list[ParkedEvent]:
    """Returns the key's events, in order. Raises `NothingParked`."""
    rows = await connection.fetch(_OF_KEY, model.name, key, None)
    if not rows:
        raise NothingParked(f"{model.name} has nothing parked for {key}")
    return [_event(row) for row in rows]


async def retry(connection: Connection, model: ReadModel[Any], key: str) -> RetryResult:
    """Applies the key's events in order, up to the first that still cannot be applied.

    The projection may run: it waits while a portion has the read model's position locked. Remaining events keep the key
    parked, so the order is kept. An interrupted retry keeps what it has applied. Raises `NothingParked`, `OtherCode`.
    """
    await _first(connection, model, key)
    return await _retry_all(connection, model, key)


async def skip(connection: Connection, model: ReadModel[Any], key: str, reason: str) -> RetryResult:
    """Excludes the key's first event from the read model permanently, and retries the later ones. It skips the
    event's version, so the next version may follow. Raises `NothingParked`, `StreamForked`, `OtherCode`."""
    async with connection.transaction():
        await lock_positions(connection, model)
        first = await _first(connection, model, key)
        if first["kind"] == "forked":
            raise StreamForked(stream_of(first["topic"], key))
        await connection.execute(_SKIP, model.name, key, first["version"], reason)
        await connection.execute(_REMOVE, model.name, key, *_location_of(first))
    return await _retry_all(connection, model, key)


async def retry_readable(connection: Connection, models: Sequence[ReadModel[Any]]) -> list[str]:
    """Retries the keys whose first event an older version could not read; returns them."""
    by_name = {model.name: model for model in models}
    applied_now = []
    for name, key in await connection.fetch(_UNREADABLE, list(by_name)):
        row = await connection.fetchrow(_OF_KEY, name, key, 1)
        first = None if row is None else _arrival(row, {})
        if first is not None and (first.event is not None or first.kind is _NO_EVENT):
            await _retry_all(connection, by_name[name], key)
            applied_now.append(f"{name}:{key}")
    return applied_now


async def _first(connection: Connection, model: ReadModel[Any], key: str) -> Any:
    row = await connection.fetchrow(_OF_KEY, model.name, key, 1)
    if row is None:
        raise NothingParked(f"{model.name} has nothing parked for {key}")
    return row


async def _retry_all(connection: Connection, model: ReadModel[Any], key: str) -> RetryResult:
    applied = 0
    while True:
        async with connection.transaction():
            await lock_positions(connection, model)
            verdicts = await _verdicts(connection, model, key)
            rows = await connection.fetch(_OF_KEY, model.name, key, PORTION)
            run = [_arrival(row, verdicts) for row in rows]
            waiting = await apply_run(connection, model, run)
            applied_now = len(run) - len(waiting)
            if applied_now:
                await connection.execute(_REMOVE, model.name, key, *_location_of(rows[applied_now - 1]))
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, notification(model.name, [key]))
            applied += applied_now
            if waiting:
                stop = waiting[0][1]
                await connection.execute(_LEFT, model.name, *_location_of(rows[applied_now]), *stop)
                left = await connection.fetchval(_COUNT, model.name, key)
                return RetryResult(applied, left, stop.reason)
        if len(rows) < PORTION:
            return RetryResult(applied, 0, "")


async def _verdicts(connection: Connection, model: ReadModel[Any], key: str) -> Mapping[Judged, Any]:
    """Returns the decisions on the key's stream that the read model has applied."""
    stream = f"{model.stream}/{key}"
    rows = await connection.fetch(_JUDGED, model.name, stream)
    return {Judged(stream, *row[:3]): row["verdict"] for row in rows}


def _arrival(row: Mapping[str, Any], verdicts: Mapping[Judged, Any]) -> Arrival:
    record = _record(row)
    try:
        metadata = read_headers(record.headers)
    except Malformed:
        return Arrival(record, row["key"], _NO_EVENT, None, row["reason"])
    judged = identity(record.topic, metadata, record.value)
    return decode_arrival(record, Event(metadata, verdicts.get(judged)))


def _location_of(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _record(row: Mapping[str, Any]) -> Record:
    headers = msgspec.msgpack.decode(row["headers"], type=list[tuple[str, bytes | None]])
    return Record(*_location_of(row), row["record_key"], row["value"], headers)


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
