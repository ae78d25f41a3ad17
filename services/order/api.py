"""The write API of orders."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from services.edge.app import api_router
from services.edge.problems import Code
from services.edge.write_docs import succeeded, write_problems
from services.edge.write_headers import EntityId, Headers
from services.edge.write_route import WriteRoute
from services.edge.writes import Resource, Write, WriteApi, Writer, entity_of_key
from services.kernel.record.envelope import now_micros
from services.order.domain.refusals import OrderRefusal
from services.order.requests import (
    CancellationRequest,
    OrderRequest,
    OrderResponse,
    ReturnRequest,
    ShipmentRequest,
)
from services.order.settings import OrderApiSettings
from services.order.settlement import Settlement, SettlementTail

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
Wait = Annotated[
    Literal["settled"] | None,
    Query(description="Respond when the order is confirmed or rejected, or as `placed` after a timeout."),
]


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
        the Idempotency-Key."""
        write = self._writer.read(request, headers, body)
        order_id = body.order_id or entity_of_key(write.key)
        command = body.command(order_id, now_micros(), self._settings.settle_seconds)
        if wait is None:
            return self._writer.respond(await self._writer.send(write, order_id, command), created=True)
        waiter = await self._tail.watch(order_id)
        try:
            outcome = await self._writer.send(write, order_id, command)
            settlement = await self._settlement(waiter)
        finally:
            if waiter is not None:
                self._tail.unwatch(order_id, waiter)
        return self._writer.respond(outcome, created=True, settlement=settlement)

    async def _settlement(self, waiter: asyncio.Future[Settlement] | None) -> Settlement | None:
        if waiter is None:
            return None
        await asyncio.wait([waiter], timeout=self._settings.settled_wait_seconds)
        return waiter.result() if waiter.done() else None

    async def cancel_order(
        self, request: Request, order_id: EntityId, body: CancellationRequest, headers: Headers
    ) -> Response:
        write = self._writer.read(request, headers, body)
        return await self._change(write, order_id, body.command(order_id, now_micros()))

    async def ship_order(
        self, request: Request, order_id: EntityId, body: ShipmentRequest, headers: Headers
    ) -> Response:
        write = self._writer.read(request, headers, body)
        return await self._change(write, order_id, body.command(order_id, now_micros()))

    async def return_goods(
        self, request: Request, order_id: EntityId, body: ReturnRequest, headers: Headers
    ) -> Response:
        write = self._writer.read(request, headers, body)
        return await self._change(write, order_id, body.command(order_id, now_micros()))

    async def _change(self, write: Write, order_id: str, command: Any) -> Response:
        return self._writer.respond(await self._writer.send(write, order_id, command))


def routes(api: OrderApi, route_class: type[APIRoute] = WriteRoute) -> APIRouter:
    """The four writes."""
    router = api_router("orders", route_class=route_class)
    placed = {**EXAMPLE, "version": 1, "status": "placed"}
    router.add_api_route(
        "/orders",
        api.place_order,
        methods=["POST"],
        summary="Place an order",
        status_code=201,
        response_model=OrderResponse,
        responses={
            200: succeeded("It was placed before", OrderResponse, placed),
            201: succeeded(
                "Placed; it is confirmed when all its stock is reserved", OrderResponse, placed, created=True
            ),
            **write_problems(ABOUT, _refusals(*PLACING)),
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
            response_model=OrderResponse,
            responses={
                200: succeeded("Done, or it was done before", OrderResponse, {**EXAMPLE, "status": status}),
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
    resource = Resource("order", "order_id", "/orders/", frozenset({"order_not_found"}))
    api = WriteApi("order", settings, resource)
    tail = SettlementTail(settings.kafka, lambda: api.gateway.epoch)
    return api.application(
        routes(OrderApi(api.writer, tail, settings)),
        title="Daybook orders",
        about="Place orders and change them. A 2xx means that the events are in the log.",
        before_end=tail.close,
    )
