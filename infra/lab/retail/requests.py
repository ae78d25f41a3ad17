"""Steps → HTTP requests. The same step is the same bytes under the same key, today and tomorrow."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from infra.lab.retail.rows import to_decimal
from infra.lab.retail.steps import Adjust, Cancel, Place, Receive, Return, Ship, Step

CURRENCY = "GBP"
CORRELATION = "retail:"  # every chain of events that a load begins has an id that begins so


class Api(StrEnum):
    """Which service is asked."""

    ORDER = "order"
    INVENTORY = "inventory"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Call:
    """A POST. `kind` names the step, `key` is its Idempotency-Key, `settles` an order to wait for."""

    api: Api
    kind: str
    path: str
    key: str
    body: bytes
    settles: str | None = None

    @property
    def correlation(self) -> str:
        """The correlation id: a key is unique within the entity that the path names."""
        return ":".join([CORRELATION.rstrip(":"), *self.path.split("/")[2:3], self.key])


def call(step: Step) -> Call:
    """The request of one step."""
    at = _text(step.at)
    match step:
        case Receive(sku=sku, quantity=quantity, reference=reference):
            body = {"quantity": quantity, "reference": reference, "occurred_at": at}
            return _call(Api.INVENTORY, "receipt", f"/stock/{sku}/receipts", reference, body)
        case Adjust(sku=sku, quantity=quantity, number=number, reason=reason):
            body = {"quantity": quantity, "reason": reason, "occurred_at": at}
            return _call(Api.INVENTORY, "adjustment", f"/stock/{sku}/adjustments", f"count-{number}", body)
        case Place(order_id=order_id):
            return Call(
                Api.ORDER, "order", "/orders", f"order-{order_id}", _order(step, at), settles=order_id
            )
        case Ship(order_id=order_id):
            body = {"reference": f"parcel-{order_id}", "occurred_at": at}
            return _call(Api.ORDER, "shipment", f"/orders/{order_id}/shipment", "shipment", body)
        case Cancel(order_id=order_id, credit=credit):
            body = {"reason": f"credit note {credit}", "occurred_at": at}
            return _call(
                Api.ORDER, "cancellation", f"/orders/{order_id}/cancellation", f"cancel-{credit}", body
            )
        case Return(order_id=order_id, credit=credit, lines=lines):
            goods = [{"sku": sku, "quantity": units} for sku, units in lines]
            body = {"lines": goods, "reason": f"credit note {credit}", "occurred_at": at}
            return _call(Api.ORDER, "return", f"/orders/{order_id}/returns", f"return-{credit}", body)


def _call(api: Api, kind: str, path: str, key: str, body: dict[str, Any]) -> Call:
    return Call(api, kind, path, key, msgspec.json.encode(body))


def _order(step: Place, at: str) -> bytes:
    order = {
        "order_id": step.order_id,
        "customer_id": step.customer_id,
        "country": step.country,
        "currency": CURRENCY,
        "occurred_at": at,
        "lines": [
            {"sku": line.sku, "quantity": line.quantity, "unit_price": to_decimal(line.unit_price)}
            for line in step.lines
        ],
        "charges": [{"code": charge.code, "amount": to_decimal(charge.amount)} for charge in step.charges],
    }
    return msgspec.json.encode(order)


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
