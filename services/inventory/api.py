"""The write API of stock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from services.edge.gateway import Gateway, GatewaySettings
from services.edge.openapi import documentation
from services.edge.serving import application, end_process
from services.edge.writes import Resource, Write, WriteEndpoint, Writer
from services.inventory.openapi import described
from services.inventory.requests import AdjustmentRequest, ReceiptRequest
from services.inventory.settings import ApiSettings
from services.kernel.envelope import now_micros


class StockApi:
    """One handler per route."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def receive(self, write: Write[ReceiptRequest]) -> Response:
        sku = write.entity("sku")
        return await self._change(write, sku, write.body.command(sku, now_micros()))

    async def adjust(self, write: Write[AdjustmentRequest]) -> Response:
        sku = write.entity("sku")
        return await self._change(write, sku, write.body.command(sku, now_micros()))

    async def _change(self, write: Write[Any], sku: str, command: Any) -> Response:
        return self._writer.answer(await self._writer.send(write, sku, command))


def routes(api: StockApi, hash_key: bytes) -> list[Route]:
    """The two writes."""

    def post(path: str, body: type[Struct], execute: Callable[[Any], Awaitable[Response]]) -> Route:
        return Route(path, WriteEndpoint(body, execute, route=path, key=hash_key), methods=["POST"])

    return [
        post("/stock/{sku}/receipts", ReceiptRequest, api.receive),
        post("/stock/{sku}/adjustments", AdjustmentRequest, api.adjust),
    ]


def create(settings: ApiSettings) -> Starlette:
    """The application; it connects when it starts."""
    gateway = Gateway(
        GatewaySettings(
            service="inventory",
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
    api = StockApi(Writer(gateway, Resource("stock", "sku", f"{settings.query_url}/stock/")))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        yield
        await gateway.close()

    written = routes(api, settings.hash_key.get_secret_value().encode())
    return application([*written, *documentation(described())], gateway.not_ready, lifespan)
