"""Histories, read: as the audit trail, and folded to what an order was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import msgspec

from contracts.records import RECORDS
from services.edge.money import decimal_text
from services.kernel.envelope import Envelope, Metadata, format_time
from services.kernel.read_model import Connection, Versioned
from services.kernel.row_fold import versioned
from services.projection.answers import EntryAnswer, HistoryPage
from services.projection.orders.fold import Order, fold
from services.projection.parameters import to_cursor

_PAGE = "SELECT * FROM order_history.entry WHERE order_id = $1 AND version > $2 ORDER BY version LIMIT $3"
_UNTIL = """
SELECT * FROM order_history.entry
WHERE order_id = $1 AND ($2::bigint IS NULL OR version <= $2)
  AND ($3::timestamptz IS NULL OR recorded_at <= $3)
ORDER BY version"""
_MONEY = frozenset({"gross", "unit_price", "amount", "refund"})
_TIMES = frozenset({"occurred_at", "placed_at", "settle_by"})


@dataclass(frozen=True)
class AsOf:
    """A version, or a recorded time in micros UTC: what we knew then."""

    version: int | None = None
    recorded_at: int | None = None


async def page(connection: Connection, order_id: str, after: int, limit: int) -> HistoryPage:
    """Oldest first, after a version."""
    rows = await connection.fetch(_PAGE, order_id, after, limit + 1)
    events = [_entry(row) for row in rows[:limit]]
    return HistoryPage(order_id, events, to_cursor(events[-1].version) if len(rows) > limit else None)


async def order_as_of(connection: Connection, order_id: str, at: AsOf) -> Versioned[Order] | None:
    """The order then, by the same fold as the live rows. None: it did not exist, or not in that version."""
    rows = await connection.fetch(_UNTIL, order_id, at.version, at.recorded_at)
    if not rows or (at.version is not None and rows[-1]["version"] != at.version):
        return None
    nothing: Versioned[Order] | None = None
    return reduce(partial(versioned, fold), map(_envelope, rows), nothing)


def _envelope(row: Mapping[str, Any]) -> Envelope[Any]:
    metadata = Metadata(
        id=row["event_id"],
        type=row["type"],
        subject=row["order_id"],
        source=row["source"],
        recorded_at=row["recorded_at"],
        correlation_id=row["correlation_id"],
        causation_id=row["causation_id"],
        epoch=row["epoch"],
        version=row["version"],
    )
    return Envelope(metadata, msgspec.convert(row["body"], RECORDS[row["type"]]))


def _entry(row: Mapping[str, Any]) -> EntryAnswer:
    return EntryAnswer(
        version=row["version"],
        event_id=row["event_id"],
        type=row["type"],
        recorded_at=format_time(row["recorded_at"]),
        occurred_at=format_time(row["occurred_at"]),
        epoch=row["epoch"],
        source=row["source"],
        correlation_id=row["correlation_id"],
        causation_id=row["causation_id"],
        body=readable(row["body"]),
    )


def readable(value: Any, name: str = "") -> Any:
    """Micros as people read them: money as decimals, times as RFC 3339."""
    match value:
        case dict():
            return {key: readable(part, key) for key, part in value.items()}
        case list():
            return [readable(part, name) for part in value]
        case int() if name in _MONEY:
            return decimal_text(value)
        case int() if name in _TIMES:
            return format_time(value)
        case _:
            return value
