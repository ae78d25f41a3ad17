"""The HTTP side of the peers: the order service's own request model, validation and server, another back.

A peer is measured for what it does with a command, not for a slower framework in front of it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from contracts.order.commands import PlaceOrder
from services.edge.json_logs import configure_logging
from services.edge.serving import Lifespan, application, serve
from services.edge.writes import Write, WriteEndpoint, command_id, entity_of_key
from services.kernel.envelope import now_micros
from services.kernel.tokens import Token
from services.order.requests import OrderRequest

Place = Callable[[PlaceOrder, str, Write[OrderRequest]], Awaitable[str]]


def serve_orders(name: str, place: Place, lifespan: Lifespan | None = None) -> None:
    """`POST /orders` on DAYBOOK_HTTP_PORT. `place(command, command id, request)` answers the event's id."""

    async def execute(write: Write[OrderRequest]) -> Response:
        order_id = write.body.order_id or entity_of_key(write.key)
        command = write.body.command(order_id, now_micros(), 60.0)
        identity = command_id(order_id, write.key)
        return created(order_id, identity, await place(command, identity, write))

    endpoint: WriteEndpoint[Any] = WriteEndpoint(
        OrderRequest, execute, route="/orders", key=os.environ["DAYBOOK_HASH_KEY"].encode()
    )
    configure_logging(name, "WARNING")
    app = application([Route("/orders", endpoint, methods=["POST"])], lambda: None, lifespan)
    serve(app, os.environ["DAYBOOK_HTTP_HOST"], int(os.environ["DAYBOOK_HTTP_PORT"]))


def created(order_id: str, identity: str, event_id: str) -> Response:
    """The shop's own answer to a new order."""
    headers = {
        "ETag": '"1"',
        "Consistency-Token": Token(f"order/{order_id}", 1, event_id, 1).encode(),
        "Location": f"/orders/{order_id}",
    }
    body = {"order_id": order_id, "version": 1, "status": "placed", "command_id": identity}
    return Response(msgspec.json.encode(body), 201, headers, "application/json")
