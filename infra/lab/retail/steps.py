"""The steps of a load, and the HTTP request of each: the same bytes under the same key, whenever it is sent."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from infra.lab.load.clients import Api, Request
from services.edge.requests import decimal_text

MICROS = 1_000_000
CURRENCY = "GBP"
CORRELATION = "retail:"  # the correlation id of every command of a load begins so


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """Units of one article; `unit_price` in micros."""

    sku: str
    quantity: int
    unit_price: int


@dataclass(frozen=True, slots=True)
class InvoiceCharge:
    """Postage, a fee or a discount; `amount` in micros, negative for a discount."""

    code: str
    amount: int


@dataclass(frozen=True, slots=True)
class Receive:
    """A delivery of stock: the opening stock or a month's replenishment."""

    at: datetime
    sku: str
    quantity: int
    reference: str


@dataclass(frozen=True, slots=True)
class Adjust:
    """A write-off (negative) or a find: no customer and no price; `number` names it in the data."""

    at: datetime
    sku: str
    quantity: int
    number: str
    reason: str


@dataclass(frozen=True, slots=True)
class Place:
    """An order; `order_id` is the invoice's number. Lines are as written: the same SKU may be on several."""

    at: datetime
    order_id: str
    customer_id: str | None
    country: str
    lines: tuple[InvoiceLine, ...]
    charges: tuple[InvoiceCharge, ...]


@dataclass(frozen=True, slots=True)
class Ship:
    """Hand a confirmed order to the carrier."""

    at: datetime
    order_id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel an order before it is shipped; `credit` is the number of the credit note."""

    at: datetime
    order_id: str
    credit: str


@dataclass(frozen=True, slots=True)
class Return:
    """Goods of one shipped order come back; `lines` are (SKU, units), each SKU once."""

    at: datetime
    order_id: str
    credit: str
    lines: tuple[tuple[str, int], ...]


StockStep = Receive | Adjust
OrderStep = Place | Ship | Cancel | Return
Step = StockStep | OrderStep
Chain = tuple[OrderStep, ...]
"""One order's life, in order; each step waits for the one before it."""


def request_of(step: Step) -> Request:
    """The request of one step. Keys are unique within an entity, and come from the numbers of the data."""
    at = step.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    match step:
        case Receive(sku=sku, quantity=quantity, reference=reference):
            body: dict[str, Any] = {"quantity": quantity, "reference": reference, "occurred_at": at}
            return _request(Api.INVENTORY, "receipt", sku, "receipts", reference, body)
        case Adjust(sku=sku, quantity=quantity, number=number, reason=reason):
            body = {"quantity": quantity, "reason": reason, "occurred_at": at}
            return _request(Api.INVENTORY, "adjustment", sku, "adjustments", f"count-{number}", body)
        case Place(order_id=order_id):
            return _order(step, order_id, at)
        case Ship(order_id=order_id):
            body = {"reference": f"parcel-{order_id}", "occurred_at": at}
            return _request(Api.ORDER, "shipment", order_id, "shipment", "shipment", body)
        case Cancel(order_id=order_id, credit=credit):
            body = {"reason": f"credit note {credit}", "occurred_at": at}
            return _request(Api.ORDER, "cancellation", order_id, "cancellation", f"cancel-{credit}", body)
        case Return(order_id=order_id, credit=credit, lines=lines):
            goods = [{"sku": sku, "quantity": units} for sku, units in lines]
            body = {"lines": goods, "reason": f"credit note {credit}", "occurred_at": at}
            return _request(Api.ORDER, "return", order_id, "returns", f"return-{credit}", body)


def _request(api: Api, kind: str, entity: str, resource: str, key: str, body: dict[str, Any]) -> Request:
    path = f"/{'stock' if api is Api.INVENTORY else 'orders'}/{entity}/{resource}"
    correlation = f"{CORRELATION}{entity}:{key}"
    return Request(kind, api, path, key, entity, msgspec.json.encode(body), correlation=correlation)


def _order(step: Place, order_id: str, at: str) -> Request:
    body = {
        "order_id": order_id,
        "customer_id": step.customer_id,
        "country": step.country,
        "currency": CURRENCY,
        "occurred_at": at,
        "lines": [
            {"sku": line.sku, "quantity": line.quantity, "unit_price": decimal_text(line.unit_price)}
            for line in step.lines
        ],
        "charges": [{"code": charge.code, "amount": decimal_text(charge.amount)} for charge in step.charges],
    }
    key = f"order-{order_id}"
    return Request(
        "order",
        Api.ORDER,
        "/orders",
        key,
        order_id,
        msgspec.json.encode(body),
        settles=True,
        correlation=CORRELATION + key,
    )
