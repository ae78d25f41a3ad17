"""The OpenAPI document of the order API."""

from __future__ import annotations

from typing import Any

from services.edge.openapi import Operation, Parameter, document, refusal
from services.edge.write_docs import ID_SCHEMA, WRITE_PARAMETERS, done, failures
from services.order.requests import (
    CancellationRequest,
    OrderAnswer,
    OrderRequest,
    ReturnRequest,
    ShipmentRequest,
)

ORDER_ID = "536365"
COMMAND_ID = "0d3f8d0e-6d0c-5f4b-9d5a-1c3b1f0f7a11"
EXAMPLES: dict[type, Any] = {
    OrderRequest: {
        "order_id": ORDER_ID,
        "customer_id": "17850",
        "country": "United Kingdom",
        "currency": "GBP",
        "occurred_at": "2010-12-01T08:26:00Z",
        "lines": [
            {"sku": "85123A", "quantity": 6, "unit_price": "2.55"},
            {"sku": "71053", "quantity": 6, "unit_price": "3.39"},
        ],
        "charges": [{"code": "POST", "amount": "18.00"}],
    },
    CancellationRequest: {"reason": "ordered twice"},
    ShipmentRequest: {"carrier": "Royal Mail", "reference": "RM123456785GB"},
    ReturnRequest: {"lines": [{"sku": "71053", "quantity": 2}], "reason": "broken"},
}
_ORDER = Parameter("order_id", "path", "The order.", ID_SCHEMA, example=ORDER_ID)
_WAIT = Parameter(
    "wait",
    "query",
    "`settled`: answer when the order is confirmed or rejected, or as placed after a bound.",
    {"type": "string", "enum": ["settled"]},
)


def described() -> dict[str, Any]:
    """The document; a snapshot of it is kept by a test."""
    return document(
        "Daybook orders",
        "Place orders and change them. An answer of 2xx means that the events are in the log.",
        [
            _place(),
            _change("cancellation", "Cancel an order that is not shipped", CancellationRequest, "cancelled"),
            _change("shipment", "Hand a confirmed order to a carrier", ShipmentRequest, "shipped"),
            _change(
                "returns", "Take back a part of a shipped order, or all of it", ReturnRequest, "returned"
            ),
        ],
    )


def _place() -> Operation:
    placed = {"order_id": ORDER_ID, "version": 1, "status": "placed", "command_id": COMMAND_ID}
    return Operation(
        "POST",
        "/orders",
        "Place an order",
        {
            200: done("It was so already", OrderAnswer, placed),
            201: done(
                "Placed; it is confirmed when all its stock is reserved", OrderAnswer, placed, created=True
            ),
            409: refusal("Refused", 409, "order_exists", order_id=ORDER_ID),
            **failures("order_id", ORDER_ID),
        },
        (_WAIT, *WRITE_PARAMETERS),
        OrderRequest,
        EXAMPLES[OrderRequest],
        "Prices are exact decimals with at most six places. Without `order_id` the order's id follows from "
        "the Idempotency-Key.",
    )


def _change(path: str, summary: str, body: type, status: str) -> Operation:
    changed = {"order_id": ORDER_ID, "version": 3, "status": status, "command_id": COMMAND_ID}
    return Operation(
        "POST",
        f"/orders/{{order_id}}/{path}",
        summary,
        {
            200: done("Done, or it was so already", OrderAnswer, changed),
            404: refusal("There is no such order", 404, "order_not_found", order_id=ORDER_ID),
            409: refusal("Refused; `code` says why", 409, "already_shipped", order_id=ORDER_ID),
            **failures("order_id", ORDER_ID),
        },
        (_ORDER, *WRITE_PARAMETERS),
        body,
        EXAMPLES[body],
    )
