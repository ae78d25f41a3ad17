"""What customers and the warehouse may ask of an order over HTTP, and the commands that it becomes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from contracts.order.commands import (
    CancelOrder,
    PlaceOrder,
    ReturnedLine,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import Charge, Line
from services.edge.fields import (
    MAX_LINES,
    Amount,
    Currency,
    Id,
    Moment,
    Price,
    Quantity,
    ShortText,
    Text,
    occurred_at,
)
from services.edge.http import invalid
from services.edge.money import micros

MAX_GROSS = 10**15  # micros: a thousand million units of any currency


class LineRequest(Struct, frozen=True, forbid_unknown_fields=True):
    sku: Id
    quantity: Quantity
    unit_price: Price


class ChargeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Postage, a fee or (negative) a discount."""

    code: ShortText
    amount: Amount


class OrderRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An order; without `order_id` its id follows from the Idempotency-Key."""

    country: ShortText
    currency: Currency
    lines: Annotated[list[LineRequest], Meta(min_length=1, max_length=MAX_LINES)]
    order_id: Id | None = None
    customer_id: Id | None = None
    occurred_at: Moment | None = None
    charges: Annotated[list[ChargeRequest], Meta(max_length=MAX_LINES)] = []

    def command(self, order_id: str, now: int, settle_seconds: float) -> PlaceOrder:
        """`now` in micros UTC. Raises `Problem` where the order is worth more than `MAX_GROSS`."""
        lines = tuple([Line(line.sku, line.quantity, micros(line.unit_price)) for line in self.lines])
        charges = tuple([Charge(charge.code, micros(charge.amount)) for charge in self.charges])
        goods = sum([line.quantity * line.unit_price for line in lines])
        # goods are refunded without their discounts, so that each alone must be countable
        if max(goods, sum([abs(charge.amount) for charge in charges])) > MAX_GROSS:
            raise invalid("lines", "the order is worth more than the shop can count", "amount_too_large")
        return PlaceOrder(
            order_id=order_id,
            customer_id=self.customer_id,
            country=self.country,
            currency=self.currency,
            occurred_at=occurred_at(self.occurred_at, now),
            settle_by=now + int(settle_seconds * 1_000_000),
            lines=lines,
            charges=charges,
        )


class CancellationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Text
    occurred_at: Moment | None = None

    def command(self, order_id: str, now: int) -> CancelOrder:
        return CancelOrder(order_id, self.reason, occurred_at(self.occurred_at, now))


class ShipmentRequest(Struct, frozen=True, forbid_unknown_fields=True):
    carrier: Text | None = None
    reference: Text | None = None
    occurred_at: Moment | None = None

    def command(self, order_id: str, now: int) -> ShipOrder:
        return ShipOrder(
            order_id=order_id,
            carrier=self.carrier,
            reference=self.reference,
            occurred_at=occurred_at(self.occurred_at, now),
        )


class ReturnedLineRequest(Struct, frozen=True, forbid_unknown_fields=True):
    sku: Id
    quantity: Quantity


class ReturnRequest(Struct, frozen=True, forbid_unknown_fields=True):
    lines: Annotated[list[ReturnedLineRequest], Meta(min_length=1, max_length=MAX_LINES)]
    reason: Text
    occurred_at: Moment | None = None

    def command(self, order_id: str, now: int) -> ReturnLines:
        return ReturnLines(
            order_id=order_id,
            lines=tuple(ReturnedLine(line.sku, line.quantity) for line in self.lines),
            reason=self.reason,
            occurred_at=occurred_at(self.occurred_at, now),
        )


class OrderAnswer(Struct, frozen=True):
    """`version` counts the order's events; `status` is placed, confirmed, rejected, cancelled, expired …"""

    order_id: str
    version: int
    status: str
    command_id: str
