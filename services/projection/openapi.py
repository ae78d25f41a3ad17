"""The OpenAPI document of the query API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.edge.openapi import Operation, Parameter, Reply, document, refusal
from services.projection import answers
from services.projection.orders.queries import STATUSES
from services.projection.parameters import MAX_PAGE, PAGE

TEXT = {"type": "string"}
WHEN = "2010-12-01T08:26:00.000000Z"
RECORDED = "2026-03-01T12:00:00.000000Z"
LATER = "WzEyOTExOTIwMDAwMDAwMDAsIjUzNjM2NSJd"
EVENT_ID = "0195534d-3c00-7000-8000-000000000001"
PLACE = {"country": "United Kingdom", "currency": "GBP"}
SUMMARY: dict[str, Any] = {
    "order_id": "536365",
    "version": 2,
    "status": "confirmed",
    "customer_id": "17850",
    **PLACE,
    "placed_at": WHEN,
    "changed_at": RECORDED,
    "units": 12,
    "gross": "35.64",
    "refunded": "0.00",
    "net": "35.64",
    "stale": None,
}
ORDER: dict[str, Any] = {
    **SUMMARY,
    "lines": [
        {"sku": "85123A", "quantity": 6, "unit_price": "2.55"},
        {"sku": "71053", "quantity": 6, "unit_price": "3.39"},
    ],
    "charges": [],
    "returned": {},
    "short": [],
    "carrier": None,
    "reference": None,
    "reason": None,
}
STOCK = {
    "sku": "85123A",
    "version": 3,
    "changed_at": RECORDED,
    "on_hand": 1000,
    "reserved": 6,
    "available": 994,
    "received": 1000,
    "adjusted": 0,
    "returned": 0,
    "issued": 0,
    "stale": None,
}
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
    "body": {
        "order_id": "536365",
        "occurred_at": WHEN,
        "reserved": ["85123A", "71053"],
        **PLACE,
        "gross": "35.64",
    },
}
DAY = {
    "day": "2010-12-01",
    **PLACE,
    "orders": 127,
    "units": 24_215,
    "gross": "46376.49",
    "returned": "325.02",
}
STUCK = {
    "order_id": "536365",
    "version": 1,
    "since": RECORDED,
    "awaits": [{"step": "reserve", "sku": "85123A", "return_number": 0, "since": RECORDED}],
    "stale": None,
}
PARTITION = {"topic": "order.events", "partition": 0, "position": 4711, "epoch": 1}
LAG = {"applied_at": RECORDED, "lag_events": 0, "lag_seconds": 0.0, "observed_at": RECORDED}
PROJECTION = {
    "read_model": "orders",
    "parked_keys": 0,
    "parked_events": 0,
    "partitions": [{**PARTITION, **LAG}],
}

TOKEN = Parameter(
    "Consistency-Token",
    "header",
    "A write's token: the answer is at least as new as that write, for the token's own stream.",
    TEXT,
)
WAIT = Parameter(
    "wait", "query", "How long to wait for the token's write: `2`, `0.5s`, `500ms`.", TEXT, example="2s"
)
LIMIT = Parameter(
    "limit",
    "query",
    "Rows of a page.",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE},
)
CURSOR = Parameter("cursor", "query", "`next` of the page before.", TEXT)
PAGE_OF = (LIMIT, CURSOR, TOKEN, WAIT)
INVALID = refusal(
    "A parameter is wrong", 422, "invalid_field", field="limit", detail="a whole number from 1 to 500"
)
READS = {
    410: refusal("The token's write was lost in a failover", 410, "lost_in_failover"),
    422: INVALID,
    503: refusal(
        "The token's write has not arrived yet, repeat with the same token (`not_yet_visible`); it, or the "
        "entity, waits until an operator has decided (`key_parked`); or `database_unavailable`",
        503,
        "not_yet_visible",
    ),
}
SITE = {
    "Daybook-Site": "The site that answers: home or away.",
    "Daybook-Role": "Its role, active or passive, where there are two sites.",
    "Daybook-Lag-Seconds": "How far the answer may be behind the active site's log; absent where not known.",
}
STALE = {
    "Daybook-Stale": "`parked` where an event could not be applied and later ones wait behind it: one of the "
    "entity's, of a page one of any entity's. Absent otherwise."
}
ETAG = {"ETag": "The entity's version, quoted: what If-Match takes."}


def _query(name: str, about: str, schema: Mapping[str, Any] = TEXT, example: Any = None) -> Parameter:
    return Parameter(name, "query", about, schema, example=example)


def _read(
    path: str, summary: str, body: type, example: Any, *parameters: Parameter, one: str = "", about: str = ""
) -> Operation:
    """A GET; `one` names the entity where it answers a single one."""
    replies = {200: Reply("The answer", body, example, {**(ETAG if one else {}), **STALE, **SITE}), **READS}
    if one:
        replies[404] = refusal("There is none", 404, f"{one}_not_found")
    return Operation("GET", path, summary, dict(sorted(replies.items())), parameters, about=about)


def _page(name: str, row: Any) -> dict[str, Any]:
    return {name: [row], "next": LATER, "stale": None}


ORDER_ID = Parameter("order_id", "path", "The order.", TEXT, example="536365")
SKU = Parameter("sku", "path", "The stock keeping unit.", TEXT, example="85123A")
COUNTRY = _query("country", "The customer's country.", example="France")
AT = _query(
    "at", "As of then: a time with its offset (when it was recorded), or `version:<n>`.", example="version:1"
)
SINCE = _query("from", "Placed then or later: a day or a time with its offset.", example="2010-12-01")
BEFORE = _query("to", "Placed before then.", example="2011-01-01")
DAYS = (_query("from", "First day.", example="2010-12-01"), _query("to", "Last day.", example="2010-12-31"))
STATUS = _query("status", "Only these.", {"type": "string", "enum": list(STATUSES)})
CUSTOMER = _query("customer_id", "Only this customer's.", example="17850")
BELOW = _query("below", "Only where fewer are available.", {"type": "integer"}, 10)
AGE = _query("older_than", "Waiting for longer than this: `300`, `30s`.", example="300s")

OPERATIONS = (
    _read(
        "/orders/{order_id}", "One order", answers.OrderAnswer, ORDER, ORDER_ID, AT, TOKEN, WAIT, one="order"
    ),
    _read(
        "/orders",
        "Orders, newest first",
        answers.OrderPage,
        _page("orders", SUMMARY),
        *(STATUS, CUSTOMER, COUNTRY, SINCE, BEFORE, *PAGE_OF),
    ),
    _read(
        "/orders/{order_id}/history",
        "Every event of an order",
        answers.HistoryPage,
        {"order_id": "536365", "events": [ENTRY], "next": None, "stale": None},
        *(ORDER_ID, *PAGE_OF),
        one="order",
    ),
    _read("/stock/{sku}", "The stock of one SKU", answers.StockAnswer, STOCK, SKU, TOKEN, WAIT, one="stock"),
    _read("/stock", "Stock, the scarcest first", answers.StockPage, _page("stock", STOCK), BELOW, *PAGE_OF),
    _read(
        "/sales/daily",
        "Sales per day, country and currency, by business time in UTC",
        answers.SalesPage,
        _page("days", {**DAY, "net": "46051.47"}),
        *(*DAYS, COUNTRY, *PAGE_OF),
        about="An order counts on its own day once it is confirmed, and is taken back from that day when it "
        "is cancelled; a return counts on the day of the return.",
    ),
    _read(
        "/conversations/stuck",
        "Orders that have waited too long for stock",
        answers.StuckPage,
        _page("conversations", STUCK),
        *(AGE, *PAGE_OF),
    ),
    Operation(
        "GET",
        "/projections",
        "Where the read models stand",
        {200: Reply("All of them", answers.ProjectionsAnswer, {"projections": [PROJECTION]}), 422: INVALID},
    ),
)

DOCUMENT = document(
    "Daybook queries",
    "What the shop knows, folded from its events. Money is exact decimals, times are UTC.",
    OPERATIONS,
)
