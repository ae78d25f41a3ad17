"""The write API of orders: its requests, the commands that they become, and its routes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, FastAPI, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.requests import Request
from starlette.responses import Response

from contracts.order.commands import CancelOrder, PlaceOrder, ReturnedLine, ReturnLines, ShipOrder
from contracts.order.events import Charge, Line
from services.edge.app import api_router
from services.edge.durability import NOT_YET, Durability
from services.edge.identity import caller, insufficient, scopes
from services.edge.problems import Code, invalid
from services.edge.requests import (
    MAX_LINES,
    Amount,
    ChangeRequest,
    Currency,
    EntityId,
    Headers,
    Id,
    Moment,
    Price,
    Quantity,
    RequestBody,
    ShortText,
    Text,
    WriteRoute,
    micros,
    occurred_at,
)
from services.edge.settings import ApiSettings
from services.edge.writes import Resource, WriteApi, Writer, succeeded, write_problems
from services.kernel.record.envelope import now_micros
from services.kernel.settings import Positive
from services.order.domain.decider import OrderRefusal
from services.order.settlement import Settlement, SettlementTail

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
WORTH_TOO_MUCH = {
    "amount_too_large": Code(422, "the order is worth more than the shop can count", {"field": "lines"})
}
MAX_GROSS = 10**15  # micros: a thousand million units of any currency
ABOUT = {"order_id": "536365"}
EXAMPLE = {**ABOUT, "version": 3, "command_id": "0d3f8d0e-6d0c-5f4b-9d5a-1c3b1f0f7a11"}
PLACING = (OrderRefusal.ORDER_EXISTS, OrderRefusal.AMOUNT_TOO_LARGE, OrderRefusal.TOO_MANY_UNITS)
CANCELLING = (OrderRefusal.ALREADY_REJECTED, OrderRefusal.ALREADY_EXPIRED, OrderRefusal.ALREADY_SHIPPED)
SHIPPING = (OrderRefusal.NOT_CONFIRMED, OrderRefusal.ALREADY_CANCELLED, *CANCELLING)
RETURNING = (
    OrderRefusal.NOT_SHIPPED,
    OrderRefusal.SKU_NOT_IN_ORDER,
    OrderRefusal.RETURNED_TOO_MUCH,
    OrderRefusal.NOTHING_TO_RETURN,
)
NEEDED = {"cancellation": "orders:place", "shipment": "orders:ship", "returns": "orders:return"}
Wait = Annotated[
    Literal["settled"] | None,
    Query(description="Respond when the order is confirmed or rejected, or as `placed` after a timeout."),
]


class OrderApiSettings(ApiSettings):
    """An order not settled after `settle_seconds` expires; `settled_wait_seconds` bounds `?wait=settled`."""

    settle_seconds: Positive = 60.0
    settled_wait_seconds: Positive = 5.0


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

    def of_customer(self, customer: str | None) -> OrderRequest:
        """Returns the order of the only customer for whom the caller may order; None: any. Raises `Problem` 403.

        Part of the fingerprint: a customer who repeats another one's key gets a 422, not that one's order.
        """
        if customer is None or customer == self.customer_id:
            return self
        if self.customer_id is not None:
            raise insufficient("orders:place.any")
        return self.model_copy(update={"customer_id": customer})

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


class CancellationRequest(ChangeRequest):
    """Ends an order that is not shipped."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "ordered twice"}]})

    reason: Text
    occurred_at: Moment | None = None

    def command(self, order_id: str, now: int) -> CancelOrder:
        return CancelOrder(order_id, self.reason, occurred_at(self.occurred_at, now))

    def of_customer(self, customer: str | None) -> CancellationRequest:
        """Returns the cancellation of the only customer for whom the caller may cancel; None: any."""
        return (
            self if customer is None else OwnCancellation.model_construct(customer_id=customer, **dict(self))
        )


class OwnCancellation(CancellationRequest):
    """No client sends `customer_id`. It is part of the fingerprint: a customer who repeats another one's key gets
    a 422, not that one's outcome."""

    customer_id: str

    def command(self, order_id: str, now: int) -> CancelOrder:
        return CancelOrder(order_id, self.reason, occurred_at(self.occurred_at, now), self.customer_id)


class ShipmentRequest(ChangeRequest):
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


class ReturnRequest(ChangeRequest):
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
    """`version` counts the order's events; `status` is placed, confirmed, rejected, cancelled, expired …

    `durability`: for a request with that header; with 202, `this-site`.
    """

    order_id: str
    version: int
    status: str
    command_id: str
    durability: Durability | None = None


class OrderApi:
    """One handler per route."""

    def __init__(self, writer: Writer, tail: SettlementTail, settings: OrderApiSettings) -> None:
        self._writer = writer
        self._tail = tail
        self._settings = settings

    async def place_order(
        self, request: Request, body: OrderRequest, headers: Headers, wait: Wait = None
    ) -> Response:
        """Prices are exact decimals with at most six places. Without `order_id`, the id is derived from
        the Idempotency-Key. The customer is the token's subject, and sends no If-Match; with `orders:place.any`, any
        customer or none."""
        body = body.of_customer(_customer(request, headers))
        write = self._writer.read(request, headers, body)
        now, settle_seconds = now_micros(), self._settings.settle_seconds
        order_id = body.order_id or await self._writer.new_entity(
            write, lambda entity_id: body.command(entity_id, now, settle_seconds)
        )
        command = body.command(order_id, now, settle_seconds)
        if wait is None:
            outcome = await self._writer.send(write, order_id, command)
            return await self._writer.respond(write, outcome, created=True)
        waiter = await self._tail.watch(order_id)
        try:
            outcome = await self._writer.send(write, order_id, command)
            settlement = await self._settlement(waiter)
        finally:
            if waiter is not None:
                self._tail.unwatch(order_id, waiter)
        return await self._writer.respond(write, outcome, created=True, settlement=settlement)

    async def _settlement(self, waiter: asyncio.Future[Settlement] | None) -> Settlement | None:
        if waiter is None:
            return None
        await asyncio.wait([waiter], timeout=self._settings.settled_wait_seconds)
        return waiter.result() if waiter.done() else None

    async def cancel_order(
        self, request: Request, order_id: EntityId, body: CancellationRequest, headers: Headers
    ) -> Response:
        """With `orders:place`, only an order of the token's subject, and without If-Match; with `orders:place.any`,
        any order."""
        customer = _customer(request, headers)
        return await self._writer.change(request, headers, order_id, body.of_customer(customer))

    async def ship_order(
        self, request: Request, order_id: EntityId, body: ShipmentRequest, headers: Headers
    ) -> Response:
        return await self._writer.change(request, headers, order_id, body)

    async def return_goods(
        self, request: Request, order_id: EntityId, body: ReturnRequest, headers: Headers
    ) -> Response:
        return await self._writer.change(request, headers, order_id, body)


def _customer(request: Request, headers: Headers) -> str | None:
    """The only customer for whom the caller acts; None: any. Raises `Problem` 422."""
    customer = caller(request).customer("orders:place.any")
    if customer is not None and headers.if_match is not None:
        # the comparison of versions comes before the rules: it would show which orders exist
        raise invalid("If-Match", "only with the scope orders:place.any")
    return customer


def routes(api: OrderApi, route_class: type[APIRoute] = WriteRoute) -> APIRouter:
    """The four writes."""
    router = api_router("orders", route_class=route_class)
    placed = {**EXAMPLE, "version": 1, "status": "placed"}
    router.add_api_route(
        "/orders",
        api.place_order,
        methods=["POST"],
        summary="Place an order",
        dependencies=[scopes("orders:place")],
        status_code=201,
        response_model=OrderResponse,
        responses={
            200: succeeded("It was placed before", OrderResponse, placed),
            201: succeeded(
                "Placed; it is confirmed when all its stock is reserved", OrderResponse, placed, created=True
            ),
            202: succeeded("Placed, but not seen at the other site in time", OrderResponse, placed | NOT_YET),
            **write_problems(ABOUT, _refusals(*PLACING), WORTH_TOO_MUCH),
        },
    )
    for path, endpoint, summary, status, refusals in (
        ("cancellation", api.cancel_order, "Cancel an order that is not shipped", "cancelled", CANCELLING),
        ("shipment", api.ship_order, "Hand a confirmed order to a carrier", "shipped", SHIPPING),
        ("returns", api.return_goods, "Take back a part of a shipped order", "returned", RETURNING),
    ):
        router.add_api_route(
            f"/orders/{{order_id}}/{path}",
            endpoint,
            methods=["POST"],
            summary=summary,
            dependencies=[scopes(NEEDED[path])],
            response_model=OrderResponse,
            responses={
                200: succeeded("Done, or it was done before", OrderResponse, EXAMPLE | {"status": status}),
                202: succeeded(
                    "Done, but not seen at the other site in time",
                    OrderResponse,
                    EXAMPLE | {"status": status} | NOT_YET,
                ),
                **write_problems(ABOUT, _refusals(OrderRefusal.ORDER_NOT_FOUND, *refusals)),
            },
        )
    return router


def _refusals(*refusals: OrderRefusal) -> dict[str, Code]:
    return {
        refusal.name.lower(): Code(
            404 if refusal is OrderRefusal.ORDER_NOT_FOUND else 409, refusal.value, ABOUT
        )
        for refusal in refusals
    }


def create(settings: OrderApiSettings) -> FastAPI:
    """Creates the application; it connects when it starts."""
    resource = Resource("order", "order_id", "/orders/", frozenset({"order_not_found"}), "order_exists")
    api = WriteApi("order", settings, resource)
    tail = SettlementTail(settings.kafka, lambda: api.gateway.epoch)
    return api.application(
        routes(OrderApi(api.writer, tail, settings)),
        title="Daybook orders",
        about="Place orders and change them. A 2xx means that the events are in the log.",
        before_end=tail.close,
    )
