"""Events that cannot be applied: their keys wait, in order, until somebody decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.kernel.read_model import INFRASTRUCTURE, Arrival, Connection, ReadModel, fold_rows

BEHIND = "behind a parked event"
_SKIPPED = """
SELECT version, topic, partition, "offset" FROM skipped WHERE read_model = $1 AND key = $2"""
_PARK = """
INSERT INTO parked (read_model, key, version, topic, partition, "offset", headers, record_key, value, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"""


async def apply_run(connection: Connection, model: ReadModel[Any], run: Sequence[Arrival]) -> str | None:
    """Apply one key's events under a savepoint, but for those skipped; the reason where that fails.

    What has no version is skipped as that record: a version would take a genuine event with it.
    """
    store, key = model.store(model.name), run[0].key
    skipped = await connection.fetch(_SKIPPED, model.name, key)
    versions = frozenset((key, row["version"]) for row in skipped if row["version"])
    places = {(row["topic"], row["partition"], row["offset"]) for row in skipped}
    run = [one for one in run if (key, one.version) not in versions and _place(one) not in places]
    if not run:
        return None
    rows = await store.load(connection, [key])
    try:
        async with connection.transaction():
            await store.save(connection, fold_rows(model, rows, run, versions))
    except INFRASTRUCTURE:
        raise
    except Exception as error:
        return str(error) or repr(error)
    return None


def _place(arrival: Arrival) -> tuple[str, int, int]:
    return arrival.record.topic, arrival.record.partition, arrival.record.offset


async def park(connection: Connection, name: str, arrival: Arrival, reason: str) -> None:
    record = arrival.record
    headers = msgspec.msgpack.encode(list(record.headers))
    where = (record.topic, record.partition, record.offset)
    raw = (headers, record.key, record.value)
    await connection.execute(_PARK, name, arrival.key, arrival.version, *where, *raw, reason)
