"""Orders, read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.edge.money import decimal_text
from services.kernel.envelope import format_time
from services.kernel.read_model import Connection, Versioned
from services.projection.answers import ChargeAnswer, LineAnswer, OrderAnswer, OrderPage, OrderSummary
from services.projection.orders.fold import Content, Order
from services.projection.orders.store import content_of, order_of
from services.projection.parameters import to_cursor
from services.projection.stale import Stale

STATUSES = (
    "placed",
    "confirmed",
    "rejected",
    "cancelled",
    "expired",
    "shipped",
    "partly_returned",
    "returned",
)

_ONE = "SELECT * FROM orders.orders JOIN orders.content USING (order_id) WHERE order_id = $1"
_PAGE = """
SELECT * FROM orders.orders
WHERE ($1::text IS NULL OR status = $1) AND ($2::text IS NULL OR customer_id = $2)
  AND ($3::text IS NULL OR country = $3)
  AND ($4::timestamptz IS NULL OR placed_at >= $4) AND ($5::timestamptz IS NULL OR placed_at < $5)
  AND ($6::timestamptz IS NULL OR (placed_at, order_id) < ($6, $7))
ORDER BY placed_at DESC, order_id DESC LIMIT $8"""


@dataclass(frozen=True)
class Filter:
    """None: any. Times are micros UTC; `since` is included, `before` is not."""

    status: str | None = None
    customer_id: str | None = None
    country: str | None = None
    since: int | None = None
    before: int | None = None


async def order(connection: Connection, order_id: str) -> Versioned[Order] | None:
    row = await connection.fetchrow(_ONE, order_id)
    return None if row is None else order_of(row, content_of(row))


async def page(
    connection: Connection, wanted: Filter, after: tuple[int, str] | None, limit: int
) -> OrderPage:
    """Newest first, by business time; `after` are the keys of the page before."""
    filters = (wanted.status, wanted.customer_id, wanted.country, wanted.since, wanted.before)
    rows = await connection.fetch(_PAGE, *filters, *(after or (None, None)), limit + 1)
    orders = [order_of(row) for row in rows[:limit]]
    more = len(rows) > limit
    return OrderPage(
        [OrderSummary(**_summary(one)) for one in orders],
        to_cursor((orders[-1].row.placed_at, orders[-1].row.order_id)) if more else None,
    )


def answer(found: Versioned[Order], stale: Stale = None) -> OrderAnswer:
    order = found.row
    content = order.content or Content((), ())
    return OrderAnswer(
        **_summary(found),
        lines=[LineAnswer(line.sku, line.quantity, decimal_text(line.unit_price)) for line in content.lines],
        charges=[ChargeAnswer(charge.code, decimal_text(charge.amount)) for charge in content.charges],
        returned=dict(order.returned),
        short=list(order.short),
        carrier=order.carrier,
        reference=order.reference,
        reason=order.reason,
        stale=stale,
    )


def _summary(found: Versioned[Order]) -> Mapping[str, Any]:
    order = found.row
    return {
        "order_id": order.order_id,
        "version": found.version,
        "status": order.status,
        "customer_id": order.customer_id,
        "country": order.country,
        "currency": order.currency,
        "placed_at": format_time(order.placed_at),
        "changed_at": format_time(found.changed_at),
        "units": order.units,
        "gross": decimal_text(order.gross),
        "refunded": decimal_text(order.refunded),
        "net": decimal_text(order.gross - order.refunded),
    }
