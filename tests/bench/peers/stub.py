"""The limit of the front end: a back that waits 5 ms and stores nothing."""

from __future__ import annotations

import asyncio

from contracts.order.commands import PlaceOrder
from services.edge.writes import Write
from services.kernel.envelope import uuid7
from services.order.requests import OrderRequest
from tests.bench.peers.front import serve_orders

WAIT_SECONDS = 0.005


async def place(_command: PlaceOrder, _identity: str, _write: Write[OrderRequest]) -> str:
    await asyncio.sleep(WAIT_SECONDS)
    return uuid7()


if __name__ == "__main__":
    serve_orders("stub", place)
