"""Events that cannot be applied: their keys wait, in order, until somebody decides."""

from __future__ import annotations

from typing import Any

import msgspec

from services.kernel.read_model import INFRASTRUCTURE, Arrival, Connection, ReadModel, fold_rows

BEHIND = "behind a parked event"
_PARK = """
INSERT INTO parked (read_model, key, version, topic, partition, "offset", headers, record_key, value, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"""


async def apply_one(connection: Connection, model: ReadModel[Any], arrival: Arrival) -> str | None:
    """Apply one event under a savepoint, unless it was skipped; the reason where that is not possible."""
    store, key = model.store(model.name), arrival.key
    skipped = await connection.fetch(
        "SELECT version FROM skipped WHERE read_model = $1 AND key = $2", model.name, key
    )
    versions = frozenset((key, row["version"]) for row in skipped)
    rows = await store.load(connection, [key])
    if (key, arrival.version or (rows[key].version if key in rows else 0) + 1) in versions:
        return None
    try:
        async with connection.transaction():
            await store.save(connection, fold_rows(model, rows, [arrival], versions))
    except INFRASTRUCTURE:
        raise
    except Exception as error:
        return str(error) or repr(error)
    return None


async def park(connection: Connection, name: str, arrival: Arrival, reason: str) -> None:
    record = arrival.record
    headers = msgspec.msgpack.encode(list(record.headers))
    where = (record.topic, record.partition, record.offset)
    raw = (headers, record.key, record.value)
    await connection.execute(_PARK, name, arrival.key, arrival.version, *where, *raw, reason)
