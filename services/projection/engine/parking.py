"""Parks keys whose events cannot be applied, until an operator decides; counts foreign records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from services.projection.engine.read_model import (
    INFRASTRUCTURE,
    Arrival,
    Connection,
    ForeignRecord,
    ReadModel,
)
from services.projection.engine.row_fold import Stop, fold

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


async def skipped_versions(
    connection: Connection, name: str, keys: Sequence[str]
) -> frozenset[tuple[str, int]]:
    """Returns the events (key, version) of these keys that an operator has skipped."""
    rows = await connection.fetch(_SKIPPED, name, keys)
    return frozenset((row["key"], row["version"]) for row in rows)


async def apply_run(
    connection: Connection, model: ReadModel[Any], run: Sequence[Arrival]
) -> tuple[int, Stop | None]:
    """Applies one key's events under a savepoint; returns how many, and why the next one cannot be applied."""
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
            return 0, Stop("failed", str(error) or repr(error))
        for done, arrival in enumerate(run):
            if (stop := (await apply_run(connection, model, [arrival]))[1]) is not None:
                return done, stop
    waiting = folded.parked
    return len(run) - len(waiting), waiting[0][1] if waiting else None


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
