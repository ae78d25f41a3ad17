"""The HTTP side of the peers: the order service's own request model, validation and server, another back.

A peer is measured for what it does with a command, not for a slower framework in front of it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from contracts.order.commands import PlaceOrder
from services.edge.app import Lifespan, api_router, application
from services.edge.identity import scopes
from services.edge.json_logs import configure_logging
from services.edge.middleware import CorrelationMiddleware
from services.edge.requests import Headers, WriteRoute
from services.edge.server import serve
from services.edge.writes import Resource, Write, Writer, command_id, entity_of_key
from services.kernel.record.envelope import Token, now_micros
from services.order.api import OrderRequest

Place = Callable[[PlaceOrder, str, Write], Awaitable[str]]


def serve_orders(
    name: str, place: Place, lifespan: Lifespan | None = None, route_class: type[APIRoute] = WriteRoute
) -> None:
    """`POST /orders` on DAYBOOK_HTTP_PORT. `place(command, command id, request)` returns the event's id."""
    writer = Writer(
        cast(Any, None), Resource("order", "order_id", "/orders/"), os.environ["DAYBOOK_HASH_KEY"].encode()
    )
    router = api_router(route_class=route_class, dependencies=[scopes("orders:place")])

    @router.post("/orders", status_code=201)
    async def place_order(request: Request, body: OrderRequest, headers: Headers) -> Response:
        write = writer.read(request, headers, body)
        order_id = body.order_id or entity_of_key(write.key)
        command = body.command(order_id, now_micros(), 60.0)
        identity = command_id(order_id, write.key)
        return created(order_id, identity, await place(command, identity, write))

    configure_logging(name, "WARNING")
    app = application([router], lambda: None, lifespan)
    app.add_middleware(CorrelationMiddleware)
    serve(app, os.environ["DAYBOOK_HTTP_HOST"], int(os.environ["DAYBOOK_HTTP_PORT"]))


def created(order_id: str, identity: str, event_id: str) -> Response:
    """The shop's own response to a new order."""
    headers = {
        "ETag": '"1"',
        "Consistency-Token": Token(f"order/{order_id}", 1, event_id, 1).encode(),
        "Location": f"/orders/{order_id}",
    }
    body = {"order_id": order_id, "version": 1, "status": "placed", "command_id": identity}
    return JSONResponse(body, 201, headers)
