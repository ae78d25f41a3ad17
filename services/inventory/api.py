"""The write API of stock: its requests, the commands that they become, and its routes."""

from typing import Annotated

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from contracts.inventory.commands import AdjustStock, ReceiveStock
from services.edge.app import api_router
from services.edge.durability import NOT_YET, Durability
from services.edge.identity import scopes
from services.edge.problems import Code, invalid
from services.edge.requests import (
    MAX_QUANTITY,
    ChangeRequest,
    EntityId,
    Headers,
    Moment,
    Quantity,
    Text,
    WriteRoute,
    occurred_at,
)
from services.edge.settings import ApiSettings
from services.edge.writes import Resource, WriteApi, Writer, succeeded, write_problems
from services.inventory.domain.decider import StockRefusal

ABOUT = {"sku": "85123A"}
NEEDED = {"receipts": "stock:receive", "adjustments": "stock:adjust"}
EXAMPLE = {**ABOUT, "version": 1, "status": "stocked", "command_id": "7f0f3a52-6a25-5f1e-8a52-0a2d7f2f6c90"}


class ReceiptRequest(ChangeRequest):
    """A delivery; `reference` is the supplier's number or ours."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"quantity": 144, "reference": "DN-20101201-7"}]}
    )

    quantity: Quantity
    reference: Text
    occurred_at: Moment | None = None

    def command(self, sku: str, now: int) -> ReceiveStock:
        return ReceiveStock(
            sku=sku,
            quantity=self.quantity,
            reference=self.reference,
            occurred_at=occurred_at(self.occurred_at, now),
        )


class AdjustmentRequest(ChangeRequest):
    """A correction: negative for a write-off, positive for a find."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"quantity": -3, "reason": "broken in the warehouse"}]}
    )

    quantity: Annotated[int, Field(strict=True, ge=-MAX_QUANTITY, le=MAX_QUANTITY)]
    reason: Text
    occurred_at: Moment | None = None

    def command(self, sku: str, now: int) -> AdjustStock:
        """Raises `Problem` for a quantity of 0."""
        if self.quantity == 0:
            raise invalid("quantity", "an adjustment of 0 changes nothing")
        return AdjustStock(
            sku=sku,
            quantity=self.quantity,
            reason=self.reason,
            occurred_at=occurred_at(self.occurred_at, now),
        )


class StockResponse(BaseModel):
    """`version` counts the SKU's events. `durability`: for a request with that header; with 202, `this-site`."""

    sku: str
    version: int
    status: str
    command_id: str
    durability: Durability | None = None


class StockApi:
    """One handler per route."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def receive_stock(
        self, request: Request, sku: EntityId, body: ReceiptRequest, headers: Headers
    ) -> Response:
        return await self._writer.change(request, headers, sku, body)

    async def adjust_stock(
        self, request: Request, sku: EntityId, body: AdjustmentRequest, headers: Headers
    ) -> Response:
        return await self._writer.change(request, headers, sku, body)


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
            dependencies=[scopes(NEEDED[path])],
            response_model=StockResponse,
            responses={
                200: succeeded("Done, or it was done before", StockResponse, EXAMPLE),
                202: succeeded(
                    "Done, but not seen at the other site in time", StockResponse, EXAMPLE | NOT_YET
                ),
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
