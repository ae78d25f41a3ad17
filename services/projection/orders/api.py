"""Orders over HTTP."""

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Query
from pydantic import BaseModel, TypeAdapter

from services.edge.app import api_router
from services.edge.identity import insufficient, scopes
from services.projection.engine.read_model import Versioned
from services.projection.engine.visibility import Stale, stale
from services.projection.order_history.api import PointInHistory, order_as_of
from services.projection.orders.fold import Content, Order
from services.projection.orders.store import content_of, order_of
from services.projection.read_models import ORDER_HISTORY, ORDERS
from services.projection.reads import (
    AS_OF_PATTERN,
    NEXT,
    PAGE,
    RECORDED,
    WHEN,
    Country,
    Cursor,
    Limit,
    Moment,
    Money,
    Name,
    Number,
    OrderId,
    ReadRoute,
    Reads,
    Time,
    from_cursor,
    missing,
    of_entity,
    of_page,
    page_of,
)

# FastAPI leaves nulls out of a document's examples
SUMMARY: dict[str, Any] = {
    "order_id": "536365",
    "version": 4,
    "status": "partly_returned",
    "customer_id": "17850",
    "country": "United Kingdom",
    "currency": "GBP",
    "placed_at": WHEN,
    "changed_at": RECORDED,
    "units": 12,
    "gross": "35.64",
    "refunded": "6.78",
    "net": "28.86",
}
DETAILS: dict[str, Any] = {
    **SUMMARY,
    "lines": [
        {"sku": "85123A", "quantity": 6, "unit_price": "2.55"},
        {"sku": "71053", "quantity": 6, "unit_price": "3.39"},
    ],
    "charges": [],
    "returned": {"71053": 2},
    "short": [],
    "carrier": "Royal Mail",
    "reference": "RM123456785GB",
}
Status: TypeAlias = Literal[
    "placed", "confirmed", "rejected", "cancelled", "expired", "shipped", "partly_returned", "returned"
]
_KEYS = TypeAdapter(tuple[Number, Name])
_ONE = "SELECT * FROM orders.orders JOIN orders.content USING (order_id) WHERE order_id = $1"
_PAGE = """
SELECT *, gross - refunded AS net FROM orders.orders
WHERE ($1::text IS NULL OR status = $1) AND ($2::text IS NULL OR customer_id = $2)
  AND ($3::text IS NULL OR country = $3)
  AND ($4::timestamptz IS NULL OR placed_at >= $4) AND ($5::timestamptz IS NULL OR placed_at < $5)
  AND ($6::timestamptz IS NULL OR (placed_at, order_id) < ($6, $7))
ORDER BY placed_at DESC, order_id DESC LIMIT $8"""

router = api_router("orders", route_class=ReadRoute, dependencies=[scopes("orders:read")])


class OrderLine(BaseModel):
    """Units of one SKU at a price."""

    sku: str
    quantity: int
    unit_price: Money


class OrderCharge(BaseModel):
    """Postage, a fee or (negative) a discount."""

    code: str
    amount: Money


class OrderSummary(BaseModel):
    """`gross` as ordered, `net` after refunds. `stale`: `parked` if later events wait for an operator."""

    order_id: str
    version: int
    status: Status
    customer_id: str | None
    country: str
    currency: str
    placed_at: Time
    changed_at: Time
    units: int
    gross: Money
    refunded: Money
    net: Money
    stale: Stale = None


class OrderDetails(OrderSummary):
    """`returned`: units by SKU; `short`: the SKUs for which it was rejected."""

    lines: list[OrderLine]
    charges: list[OrderCharge]
    returned: dict[str, int]
    short: list[str]
    carrier: str | None = None
    reference: str | None = None
    reason: str | None = None


class OrderPage(BaseModel):
    """Newest first, by business time."""

    orders: list[OrderSummary]
    next: str | None
    stale: Stale = None


@router.get("/orders/{order_id}", summary="One order", **of_entity("order", "The order", DETAILS))
async def get_order(
    order_id: OrderId,
    reads: Reads,
    at: Annotated[
        str | None,
        Query(
            pattern=AS_OF_PATTERN,
            description="As of then: a time with its offset (when it was recorded), or `version:<n>`.",
            examples=["version:1"],
        ),
    ] = None,
) -> OrderDetails:
    then = None if at is None else PointInHistory.parse(at)
    model = ORDERS if then is None else ORDER_HISTORY
    async with reads.connection(model) as connection:
        if then is None:
            row = await connection.fetchrow(_ONE, order_id)
            order = None if row is None else order_of(row, content_of(row))
        else:
            order = await order_as_of(connection, order_id, then)
        staleness = await stale(connection, model, order_id)
    if order is None or not reads.allows(order.row.customer_id):
        raise missing("order", order_id, model, staleness if reads.customer is None else None, at)
    if then is not None and then.version is not None:
        staleness = None  # a version never changes
    reads.label(staleness, order.version)
    return _details(order, staleness)


@router.get(
    "/orders",
    summary="Orders, newest first",
    **of_page("A page of them", {"orders": [SUMMARY], "next": NEXT}),
)
async def list_orders(
    reads: Reads,
    status: Annotated[Status | None, Query(description="Only these.")] = None,
    customer_id: Annotated[
        Name | None, Query(description="Only this customer's.", examples=["17850"])
    ] = None,
    country: Country = None,
    since: Annotated[
        Moment | None,
        Query(alias="from", description="Placed then or later: a day or a time with its offset."),
    ] = None,
    before: Annotated[Moment | None, Query(alias="to", description="Placed before then.")] = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
) -> OrderPage:
    customer = reads.customer if customer_id is None else customer_id
    if not reads.allows(customer):
        raise insufficient("orders:read.all")
    filters = (status, customer, country, since, before)
    after = from_cursor(cursor, _KEYS) or (None, None)
    async with reads.connection(ORDERS) as connection:
        rows = await connection.fetch(_PAGE, *filters, *after, limit + 1)
        rows, following = page_of(rows, limit, "placed_at", "order_id")
        page = OrderPage(orders=[OrderSummary(**row) for row in rows], next=following)
        await reads.label_page(connection, ORDERS, page, {order.order_id: order for order in page.orders})
    return page


def _details(stored: Versioned[Order], staleness: Stale) -> OrderDetails:
    order = stored.row
    fields = {**vars(order), **vars(order.content or Content((), ())), "net": order.gross - order.refunded}
    fields |= {"version": stored.version, "changed_at": stored.changed_at, "stale": staleness}
    return OrderDetails.model_validate(fields, from_attributes=True)
