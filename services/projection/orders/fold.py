"""An order as customers and clerks see it: one row per order, folded from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from contracts.order.events import (
    Charge,
    Line,
    OrderCancelled,
    OrderConfirmed,
    OrderExpired,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
)
from services.kernel.record.envelope import Metadata


@dataclass(frozen=True)
class Content:
    """What was ordered. It never changes, so a row that was loaded for folding leaves it out."""

    lines: tuple[Line, ...]
    charges: tuple[Charge, ...]


@dataclass(frozen=True)
class Order:
    """Money is micros; `placed_at` is business time, micros UTC.

    `units` and `gross` as ordered; `refunded` so far; `returned` units by SKU; `short` SKUs that rejected it.
    """

    order_id: str
    status: str
    customer_id: str | None
    country: str
    currency: str
    placed_at: int
    units: int
    gross: int
    refunded: int = 0
    returned: Mapping[str, int] = field(default_factory=dict)
    short: tuple[str, ...] = ()
    carrier: str | None = None
    reference: str | None = None
    reason: str | None = None
    content: Content | None = None


class NeverPlaced(Exception):
    """An order's stream begins with something else than OrderPlaced."""


def fold(row: Order | None, event: Any, metadata: Metadata) -> Order:
    """The order after the event. Raises `NeverPlaced`."""
    if isinstance(event, OrderPlaced):
        return placed(event)
    if row is None:
        raise NeverPlaced(f"{metadata.type} on {metadata.subject}, which was never placed")
    return replace(row, **changes(row, event))


def placed(event: OrderPlaced) -> Order:
    return Order(
        order_id=event.order_id,
        status="placed",
        customer_id=event.customer_id,
        country=event.country,
        currency=event.currency,
        placed_at=event.occurred_at,
        units=sum(line.quantity for line in event.lines),
        gross=event.gross,
        content=Content(event.lines, event.charges),
    )


def changes(row: Order, event: Any) -> dict[str, Any]:
    """The fields that an event changes; reservations and movements change nothing that is shown."""
    match event:
        case OrderConfirmed():
            return {"status": "confirmed"}
        case OrderRejected(short=short):
            return {"status": "rejected", "short": short}
        case OrderCancelled(reason=reason):
            return {"status": "cancelled", "reason": reason}
        case OrderExpired():
            return {"status": "expired"}
        case OrderShipped(carrier=carrier, reference=reference):
            return {"status": "shipped", "carrier": carrier, "reference": reference}
        case OrderReturned(complete=complete, refund=refund, lines=lines):
            returned = dict(row.returned)
            for line in lines:
                returned[line.sku] = returned.get(line.sku, 0) + line.quantity
            status = "returned" if complete else "partly_returned"
            return {"status": status, "refunded": row.refunded + refund, "returned": returned}
        case _:
            return {}
