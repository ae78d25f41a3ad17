"""The write API of orders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from services.edge.gateway import Gateway, GatewaySettings
from services.edge.http import invalid
from services.edge.openapi import documentation
from services.edge.serving import application, end_process
from services.edge.writes import Resource, Write, WriteEndpoint, Writer, entity_of_key
from services.kernel.envelope import now_micros
from services.order.openapi import described
from services.order.requests import CancellationRequest, OrderRequest, ReturnRequest, ShipmentRequest
from services.order.settings import ApiSettings
from services.order.settled import Settled, SettledTail


class OrderApi:
    """One handler per route."""

    def __init__(self, writer: Writer, tail: SettledTail, settings: ApiSettings) -> None:
        self._writer = writer
        self._tail = tail
        self._settings = settings

    async def place(self, write: Write[OrderRequest]) -> Response:
        order_id = write.body.order_id or entity_of_key(write.key)
        command = write.body.command(order_id, now_micros(), self._settings.settle_seconds)
        if not _wants_settled(write.query):
            return self._writer.answer(await self._writer.send(write, order_id, command), created=True)
        waiter = await self._tail.watch(order_id)
        try:
            outcome = await self._writer.send(write, order_id, command)
            settled = await self._settled(waiter)
        finally:
            if waiter is not None:
                self._tail.unwatch(order_id, waiter)
        return self._writer.answer(outcome, created=True, settled=settled)

    async def _settled(self, waiter: asyncio.Future[Settled] | None) -> Settled | None:
        if waiter is None:
            return None
        await asyncio.wait([waiter], timeout=self._settings.settled_wait_seconds)
        return waiter.result() if waiter.done() else None

    async def cancel(self, write: Write[CancellationRequest]) -> Response:
        order_id = write.entity("order_id")
        return await self._change(write, order_id, write.body.command(order_id, now_micros()))

    async def ship(self, write: Write[ShipmentRequest]) -> Response:
        order_id = write.entity("order_id")
        return await self._change(write, order_id, write.body.command(order_id, now_micros()))

    async def take_back(self, write: Write[ReturnRequest]) -> Response:
        order_id = write.entity("order_id")
        return await self._change(write, order_id, write.body.command(order_id, now_micros()))

    async def _change(self, write: Write[Any], order_id: str, command: Any) -> Response:
        return self._writer.answer(await self._writer.send(write, order_id, command))


def _wants_settled(query: Mapping[str, str]) -> bool:
    if query.get("wait", "settled") != "settled":
        raise invalid("wait", "the only value is settled")
    return "wait" in query


def routes(api: OrderApi, hash_key: bytes) -> list[Route]:
    """The four writes."""

    def post(
        path: str, body: type[Struct], execute: Callable[[Any], Awaitable[Response]], *parameters: str
    ) -> Route:
        endpoint = WriteEndpoint(body, execute, route=path, key=hash_key, parameters=parameters)
        return Route(path, endpoint, methods=["POST"])

    return [
        post("/orders", OrderRequest, api.place, "wait"),
        post("/orders/{order_id}/cancellation", CancellationRequest, api.cancel),
        post("/orders/{order_id}/shipment", ShipmentRequest, api.ship),
        post("/orders/{order_id}/returns", ReturnRequest, api.take_back),
    ]


def create(settings: ApiSettings) -> Starlette:
    """The application; it connects when it starts."""
    gateway = Gateway(
        GatewaySettings(
            service="order",
            bootstrap=settings.kafka,
            site=settings.site,
            replica=settings.replica,
            wait=settings.wait_seconds,
            delivery_timeout=settings.delivery_seconds,
            max_pending=settings.max_pending,
            peer_url=settings.peer_url,
        ),
        on_fatal=end_process,
    )
    tail = SettledTail(settings.kafka, lambda: gateway.epoch)
    resource = Resource("order", "order_id", f"{settings.query_url}/orders/", frozenset({"order_not_found"}))
    api = OrderApi(Writer(gateway, resource), tail, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        yield
        await tail.close()
        await gateway.close()

    written = routes(api, settings.hash_key.get_secret_value().encode())
    return application([*written, *documentation(described())], gateway.not_ready, lifespan)
