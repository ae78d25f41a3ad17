"""Histories over HTTP: the audit trail of an order, and its past states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, PlainSerializer, TypeAdapter

from contracts.records import RECORDS
from services.edge.app import api_router
from services.edge.identity import scopes
from services.edge.problems import invalid
from services.edge.requests import decimal_text
from services.kernel.record.envelope import Envelope, Metadata, format_time
from services.projection.engine.read_model import Connection, Versioned
from services.projection.engine.row_fold import versioned
from services.projection.engine.visibility import Stale, stale
from services.projection.orders.fold import Order, fold
from services.projection.read_models import ORDER_HISTORY
from services.projection.reads import (
    PAGE,
    RECORDED,
    WHEN,
    Cursor,
    Limit,
    Number,
    OrderId,
    ReadRoute,
    Reads,
    Time,
    from_cursor,
    missing,
    moment,
    not_found,
    of_page,
    to_cursor,
)

EVENT_ID = "0195534d-3c00-7000-8000-000000000001"
ENTRY = {
    "version": 2,
    "event_id": EVENT_ID,
    "type": "daybook.order.OrderConfirmed",
    "recorded_at": RECORDED,
    "occurred_at": WHEN,
    "epoch": 1,
    "source": "daybook/order",
    "correlation_id": EVENT_ID,
    "causation_id": EVENT_ID,
    "auth_type": "user",
    "auth_id": "3f0c9a52b7d14e6f8a21c05d9e7b4f66",
    "body": {
        "order_id": "536365",
        "occurred_at": WHEN,
        "reserved": ["85123A", "71053"],
        "country": "United Kingdom",
        "currency": "GBP",
        "gross": "35.64",
    },
}
_VERSION = TypeAdapter(Number)
_PAGE = """
SELECT * FROM order_history.entry
WHERE order_id = $1 AND version > $2
  AND ($4::text IS NULL OR EXISTS (
    SELECT FROM order_history.entry AS placed
    WHERE placed.order_id = $1 AND placed.version = 1 AND placed.body ->> 'customer_id' = $4))
ORDER BY version LIMIT $3"""
_UNTIL = """
SELECT * FROM order_history.entry
WHERE order_id = $1 AND ($2::bigint IS NULL OR version <= $2)
  AND ($3::timestamptz IS NULL OR recorded_at <= $3)
ORDER BY version"""
_MONEY = frozenset({"gross", "unit_price", "amount", "refund"})
_TIMES = frozenset({"occurred_at", "placed_at", "settle_by"})

router = api_router("orders", route_class=ReadRoute, dependencies=[scopes("orders:read")])


def readable(value: Any, name: str = "") -> Any:
    """Renders micros for people: money as decimals, times as RFC 3339."""
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


class HistoryEntry(BaseModel):
    """One event: `recorded_at` is when it was written, `occurred_at` when it happened. `auth_type` and `auth_id`: who
    caused it, by the subject of their token."""

    version: int
    event_id: str
    type: str
    recorded_at: Time
    occurred_at: Time
    epoch: int
    source: str
    correlation_id: str
    causation_id: str
    auth_type: str
    auth_id: str | None
    body: Annotated[dict[str, Any], PlainSerializer(readable, return_type=dict[str, Any])]


class HistoryPage(BaseModel):
    """Oldest first."""

    order_id: str
    events: list[HistoryEntry]
    next: str | None
    stale: Stale = None


@router.get(
    "/orders/{order_id}/history",
    summary="Every event of an order",
    **of_page(
        "A page of them", {"order_id": "536365", "events": [ENTRY], "next": to_cursor(2)}, not_found("order")
    ),
)
async def get_order_history(
    order_id: OrderId, reads: Reads, limit: Limit = PAGE, cursor: Cursor = None
) -> HistoryPage:
    after = from_cursor(cursor, _VERSION) or 0
    async with reads.connection(ORDER_HISTORY) as connection:
        rows = await connection.fetch(_PAGE, order_id, after, limit + 1, reads.customer)
        page = HistoryPage(
            order_id=order_id,
            events=[HistoryEntry(**row) for row in rows[:limit]],
            next=to_cursor(rows[limit - 1]["version"]) if len(rows) > limit else None,
            stale=await stale(connection, ORDER_HISTORY, order_id),
        )
    if not page.events and reads.customer is not None:
        raise missing("order", order_id, ORDER_HISTORY, None)  # perhaps there is another customer's
    if not page.events and not after:
        raise missing("order", order_id, ORDER_HISTORY, page.stale)
    reads.label(page.stale)
    return page


@dataclass(frozen=True)
class PointInHistory:
    """A version, or a recorded time in micros UTC."""

    version: int | None = None
    recorded_at: int | None = None

    @classmethod
    def parse(cls, at: str) -> PointInHistory:
        """Parses the parameter `at`. Raises `Problem` 422 for a time that does not exist."""
        if at.startswith("version:"):
            return cls(version=int(at.removeprefix("version:")))
        try:
            return cls(recorded_at=moment(at))
        except ValueError as error:
            raise invalid("at", str(error)) from error


async def order_as_of(connection: Connection, order_id: str, at: PointInHistory) -> Versioned[Order] | None:
    """Returns the order at that point, by the fold of the live rows; None if it did not exist."""
    rows = await connection.fetch(_UNTIL, order_id, at.version, at.recorded_at)
    if not rows or (at.version is not None and rows[-1]["version"] != at.version):
        return None
    nothing: Versioned[Order] | None = None
    return reduce(partial(versioned, fold), map(_envelope, rows), nothing)


def _envelope(row: Mapping[str, Any]) -> Envelope[Any]:
    names = ("type", "source", "recorded_at", "correlation_id", "causation_id", "epoch", "version")
    metadata = Metadata(id=row["event_id"], subject=row["order_id"], **{name: row[name] for name in names})
    return Envelope(metadata, msgspec.convert(row["body"], RECORDS[row["type"]]))
