"""Request models of the order API, and the commands that they become."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

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
    RequestBody,
    ShortText,
    Text,
    occurred_at,
)
from services.edge.money import micros
from services.edge.problems import invalid

ORDER: JsonDict = {
    "order_id": "536365",
    "customer_id": "17850",
    "country": "United Kingdom",
    "currency": "GBP",
    "occurred_at": "2010-12-01T08:26:00Z",
    "lines": [
        {"sku": "85123A", "quantity": 6, "unit_price": "2.55"},
        {"sku": "71053", "quantity": 6, "unit_price": "3.39"},
    ],
    "charges": [{"code": "POST", "amount": "18.00"}],
}
MAX_GROSS = 10**15  # micros: a thousand million units of any currency


class LineRequest(RequestBody):
    sku: Id
    quantity: Quantity
    unit_price: Price


class ChargeRequest(RequestBody):
    """Postage, a fee or (negative) a discount."""

    code: ShortText
    amount: Amount


class OrderRequest(RequestBody):
    """An order; without `order_id`, its id is derived from the Idempotency-Key."""

    model_config = ConfigDict(json_schema_extra={"examples": [ORDER]})

    country: ShortText
    currency: Currency
    lines: Annotated[list[LineRequest], Field(min_length=1, max_length=MAX_LINES)]
    order_id: Id | None = None
    customer_id: Id | None = None
    occurred_at: Moment | None = None
    charges: Annotated[list[ChargeRequest], Field(max_length=MAX_LINES, default_factory=list)]

    def command(self, order_id: str, now: int, settle_seconds: float) -> PlaceOrder:
        """`now` in micros UTC. Raises `Problem` if the order is worth more than `MAX_GROSS`."""
        lines = tuple([Line(line.sku, line.quantity, micros(line.unit_price)) for line in self.lines])
        charges = tuple([Charge(charge.code, micros(charge.amount)) for charge in self.charges])
        goods = sum([line.quantity * line.unit_price for line in lines])
        # Refunds ignore discounts, so goods and charges must each fit.
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


class CancellationRequest(RequestBody):
    """Ends an order that is not shipped."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "ordered twice"}]})

    reason: Text
    occurred_at: Moment | None = None

    def command(self, order_id: str, now: int) -> CancelOrder:
        return CancelOrder(order_id, self.reason, occurred_at(self.occurred_at, now))


class ShipmentRequest(RequestBody):
    """Hands an order to a carrier."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"carrier": "Royal Mail", "reference": "RM123456785GB"}]}
    )

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


class ReturnedLineRequest(RequestBody):
    sku: Id
    quantity: Quantity


class ReturnRequest(RequestBody):
    """Takes goods back."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"lines": [{"sku": "71053", "quantity": 2}], "reason": "broken"}]}
    )

    lines: Annotated[list[ReturnedLineRequest], Field(min_length=1, max_length=MAX_LINES)]
    reason: Text
    occurred_at: Moment | None = None

    def command(self, order_id: str, now: int) -> ReturnLines:
        return ReturnLines(
            order_id=order_id,
            lines=tuple(ReturnedLine(line.sku, line.quantity) for line in self.lines),
            reason=self.reason,
            occurred_at=occurred_at(self.occurred_at, now),
        )


class OrderResponse(BaseModel):
    """`version` counts the order's events; `status` is placed, confirmed, rejected, cancelled, expired …"""

    order_id: str
    version: int
    status: str
    command_id: str
