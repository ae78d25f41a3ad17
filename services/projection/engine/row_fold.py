"""Folds events into rows, and parks the keys whose events cannot be applied until an operator decides.

Foreign records are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, Literal, NamedTuple

import msgspec

from services.kernel.log.rule import Event, Step, step
from services.kernel.record.envelope import Envelope
from services.projection.engine.read_model import (
    INFRASTRUCTURE,
    Arrival,
    Connection,
    Fold,
    ForeignRecord,
    Lineage,
    ReadModel,
    Row,
    Versioned,
)

StopKind = Literal["failed", "forked", "unreadable", "behind"]

KEPT = 10_000  # foreign records per partition that are stored with their offset; all are counted
_SKIPPED = "SELECT key, version FROM skipped WHERE read_model = $1 AND key = ANY($2)"
_PARK = """
INSERT INTO parked
    (read_model, key, version, topic, partition, "offset", headers, record_key, value, kind, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"""
_BEGIN_COUNT = "INSERT INTO foreign_count (topic, partition) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_COUNTED = "SELECT records, counted_to FROM foreign_count WHERE topic = $1 AND partition = $2 FOR UPDATE"
_COUNT = """
UPDATE foreign_count SET records = records + $3, counted_to = $4 WHERE topic = $1 AND partition = $2"""
_KEEP = """
INSERT INTO foreign_record (topic, partition, "offset", reason) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING"""


class Stop(NamedTuple):
    """Why an event parks its key."""

    kind: StopKind
    reason: str


BEHIND = Stop("behind", "behind a parked event")


class Folded(NamedTuple, Generic[Row]):
    """The changed rows; the events at which keys stopped, and those behind them."""

    rows: dict[str, Versioned[Row]]
    parked: list[tuple[Arrival, Stop]]


def fold(
    model: ReadModel[Row],
    rows: Mapping[str, Versioned[Row]],
    arrivals: Iterable[Arrival],
    skipped: frozenset[tuple[str, int]] = frozenset(),
) -> Folded[Row]:
    """Returns `rows` after the events. `skipped`: (key, version) that an operator skipped."""
    changed: dict[str, Versioned[Row]] = {}
    parked: list[tuple[Arrival, Stop]] = []
    stopped: set[str] = set()
    for arrival in arrivals:
        key = arrival.key
        if key in stopped:
            parked.append((arrival, BEHIND))
            continue
        row = changed.get(key) or rows.get(key)
        result = _apply(model, row, arrival, skipped)
        if isinstance(result, Stop):
            parked.append((arrival, result))
            stopped.add(key)
        elif result is not None:
            changed[key] = result
    return Folded(changed, parked)


def versioned(fold: Fold[Row], before: Versioned[Row] | None, event: Envelope[Any]) -> Versioned[Row]:
    """Returns the row after the event, at the event's version."""
    metadata = event.metadata
    row, lineage = (before.row, before.lineage) if before else (None, ())
    after = fold(row, event.body, metadata)
    lineage = extend(lineage, metadata.epoch, metadata.version)
    return Versioned(after, metadata.version, metadata.id, lineage, metadata.recorded_at)


def extend(lineage: Lineage, epoch: int, version: int) -> Lineage:
    """Returns the lineage with the version that `epoch` wrote."""
    if lineage and lineage[-1][0] == epoch:
        return lineage
    return (*lineage, (epoch, version))


def _apply(
    model: ReadModel[Row], row: Versioned[Row] | None, arrival: Arrival, skipped: frozenset[tuple[str, int]]
) -> Versioned[Row] | Stop | None:
    """Returns the row after the event; None if the event changes nothing."""
    metadata, verdict = arrival.kind
    if verdict == "foreign" or (skipped and (arrival.key, metadata.version) in skipped):
        return None
    read = row.version if row is not None else 0
    while skipped and (arrival.key, read + 1) in skipped:
        read += 1
    step_ = step(read, arrival.kind)
    if step_ is Step.APPLIED:
        return None
    if step_ is Step.FORKED:
        return Stop("forked", _forked(row, read, arrival.kind))
    if arrival.event is None:
        return Stop("unreadable", arrival.error)
    try:
        return versioned(model.fold, row, arrival.event)
    except Exception as error:
        return Stop("failed", repr(error))


def _forked(row: Versioned[Any] | None, read: int, event: Event) -> str:
    """Names both records, if the row knows its last event."""
    this = f"version {event.metadata.version} (event {event.metadata.id})"
    if event.verdict == "suspect":
        return f"{this} was not written by the owner of the stream"
    event_id = row.event_id if row is not None and row.version == read else ""
    last = f"version {read} (event {event_id})" if event_id else f"version {read}"
    return f"{this} follows {last}"


async def skipped_versions(
    connection: Connection, name: str, keys: Sequence[str]
) -> frozenset[tuple[str, int]]:
    """Returns the events (key, version) of these keys that an operator has skipped."""
    rows = await connection.fetch(_SKIPPED, name, keys)
    return frozenset((row["key"], row["version"]) for row in rows)


async def apply_run(
    connection: Connection, model: ReadModel[Any], run: Sequence[Arrival]
) -> Sequence[tuple[Arrival, Stop]]:
    """Applies one key's events under a savepoint; returns those that must wait: the first that cannot be applied, and
    those behind it."""
    if not run:
        return []
    store, key = model.store(model.name), run[0].key
    skipped = await skipped_versions(connection, model.name, [key])
    folded = fold(model, await store.load(connection, [key]), run, skipped)
    try:
        if folded.rows:
            async with connection.transaction():
                await store.save(connection, folded.rows)
    except INFRASTRUCTURE:
        raise
    except Exception as error:  # a value that no column can store
        if len(run) == 1:
            return [(run[0], Stop("failed", str(error) or repr(error)))]
        for number, arrival in enumerate(run, start=1):
            if stopped := await apply_run(connection, model, [arrival]):
                return [*stopped, *((later, BEHIND) for later in run[number:])]
    return folded.parked


async def park(connection: Connection, name: str, arrival: Arrival, stop: Stop) -> None:
    """Stores an event that is not applied, with its whole record."""
    record = arrival.record
    headers = msgspec.msgpack.encode(list(record.headers))
    where = (record.topic, record.partition, record.offset)
    raw = (headers, record.key, record.value)
    version = arrival.kind.metadata.version
    await connection.execute(_PARK, name, arrival.key, version, *where, *raw, *stop)


async def count_foreign(connection: Connection, records: Sequence[ForeignRecord]) -> list[ForeignRecord]:
    """Counts each foreign record once, for the first read model that meets it; returns the new ones. It locks
    partitions in order, so that two read models cannot deadlock."""
    fresh: list[ForeignRecord] = []
    for partition, group in groupby(sorted(records), lambda record: record[:2]):
        await connection.execute(_BEGIN_COUNT, *partition)
        counted: Any = await connection.fetchrow(_COUNTED, *partition)
        new = [record for record in group if record.offset >= counted["counted_to"]]
        if new:
            await connection.execute(_COUNT, *partition, len(new), new[-1].offset + 1)
            await connection.executemany(_KEEP, new[: max(0, KEPT - counted["records"])])
        fresh += new
    return fresh
