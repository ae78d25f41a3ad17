"""The write API of stock."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from services.edge.app import api_router
from services.edge.problems import Code
from services.edge.settings import ApiSettings
from services.edge.write_docs import succeeded, write_problems
from services.edge.write_headers import EntityId, Headers
from services.edge.write_route import WriteRoute
from services.edge.writes import Resource, Write, WriteApi, Writer
from services.inventory.domain.refusals import StockRefusal
from services.inventory.requests import AdjustmentRequest, ReceiptRequest, StockResponse
from services.kernel.record.envelope import now_micros

ABOUT = {"sku": "85123A"}
EXAMPLE = {
    **ABOUT,
    "version": 1,
    "status": "stocked",
    "command_id": "7f0f3a52-6a25-5f1e-8a52-0a2d7f2f6c90",
}


class StockApi:
    """One handler per route."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def receive_stock(
        self, request: Request, sku: EntityId, body: ReceiptRequest, headers: Headers
    ) -> Response:
        write = self._writer.read(request, headers, body)
        return await self._change(write, sku, body.command(sku, now_micros()))

    async def adjust_stock(
        self, request: Request, sku: EntityId, body: AdjustmentRequest, headers: Headers
    ) -> Response:
        write = self._writer.read(request, headers, body)
        return await self._change(write, sku, body.command(sku, now_micros()))

    async def _change(self, write: Write, sku: str, command: Any) -> Response:
        return self._writer.respond(await self._writer.send(write, sku, command))


def routes(api: StockApi, route_class: type[APIRoute] = WriteRoute) -> APIRouter:
    """The two writes."""
    router = api_router("stock", route_class=route_class)
    for path, endpoint, summary, refusal in (
        ("receipts", api.receive_stock, "Receive a delivery", StockRefusal.BAD_QUANTITY),
        ("adjustments", api.adjust_stock, "Write off or find units", StockRefusal.BELOW_RESERVED),
    ):
        refused = {refusal.name.lower(): Code(409, refusal.value, ABOUT)}
        router.add_api_route(
            f"/stock/{{sku}}/{path}",
            endpoint,
            methods=["POST"],
            summary=summary,
            response_model=StockResponse,
            responses={
                200: succeeded("Done, or it was done before", StockResponse, EXAMPLE),
                **write_problems(ABOUT, refused),
            },
        )
    return router


def create(settings: ApiSettings) -> FastAPI:
    """Creates the application; it connects when it starts."""
    api = WriteApi("inventory", settings, Resource("stock", "sku", "/stock/"))
    return api.application(
        routes(StockApi(api.writer)),
        title="Daybook stock",
        about="Take deliveries and correct the stock. A 2xx means that the events are in the log.",
    )
