"""The limit of the front end: a back that waits 5 ms and stores nothing.

`python -m tests.bench.peers.stub [ours|fastapi|asgi]`: behind our route class, FastAPI's own, or none.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import msgspec
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from contracts.order.commands import PlaceOrder
from services.edge.json_logs import configure_logging
from services.edge.requests import read_body
from services.edge.server import serve
from services.edge.writes import Write, command_id, entity_of_key
from services.kernel.record.envelope import uuid7
from tests.bench.peers.front import created, serve_orders

WAIT_SECONDS = 0.005


async def place(_command: PlaceOrder, _identity: str, _write: Write) -> str:
    await asyncio.sleep(WAIT_SECONDS)
    return uuid7()


class LineStruct(msgspec.Struct, forbid_unknown_fields=True):
    sku: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._~-]{0,63}$")]
    quantity: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    unit_price: Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$")]


class OrderStruct(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of an order, as the fastest codec has them."""

    country: str
    currency: str
    lines: Annotated[list[LineStruct], msgspec.Meta(min_length=1, max_length=1000)]
    order_id: str | None = None
    customer_id: str | None = None


class BareOrders:
    """`POST /orders` as an ASGI application without routes, problems or documents."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(OrderStruct)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._live(receive, send)
            return
        if scope["method"] == "GET":  # the harness waits until it is ready
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        key = dict(scope["headers"]).get(b"idempotency-key", b"").decode() or uuid7()
        body = self._decoder.decode(await read_body(receive))
        order_id = body.order_id or entity_of_key(key)
        await asyncio.sleep(WAIT_SECONDS)
        await created(order_id, command_id(order_id, key), uuid7())(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})


def main(front: str) -> None:
    match front:
        case "asgi":
            configure_logging("stub", "WARNING")
            serve(BareOrders(), os.environ["DAYBOOK_HTTP_HOST"], int(os.environ["DAYBOOK_HTTP_PORT"]))
        case "fastapi":
            serve_orders("stub", place, route_class=APIRoute)
        case _:
            serve_orders("stub", place)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["ours"]))
