"""The pyeventsourcing library on PostgreSQL, as its documentation shows it: aggregate, application, save.

The library is synchronous: requests go to a pool of threads, as FastAPI would do, as many as its connections.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from contracts.order.commands import PlaceOrder
from services.edge.writes import Write
from tests.bench.peers.front import serve_orders
from tests.bench.peers.outbox import placed

CONNECTIONS = 16


class Order(Aggregate):  # type: ignore[misc] # the library is not typed for us
    """An order with the same fields as ours."""

    @event("Placed")  # type: ignore[untyped-decorator]
    def __init__(
        self,
        order_id: str,
        customer_id: str | None,
        country: str,
        currency: str,
        lines: list[list[Any]],
        gross: int,
    ) -> None:
        self.order_id, self.customer_id = order_id, customer_id
        self.country, self.currency = country, currency
        self.lines, self.gross = lines, gross
        self.status = "placed"


def main() -> None:
    database = urlsplit(os.environ["DAYBOOK_DATABASE_URL"])
    store = Application(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": database.path.lstrip("/"),
            "POSTGRES_HOST": str(database.hostname),
            "POSTGRES_PORT": str(database.port),
            "POSTGRES_USER": str(database.username),
            "POSTGRES_PASSWORD": str(database.password),
            "POSTGRES_POOL_SIZE": str(CONNECTIONS),
            "POSTGRES_MAX_OVERFLOW": str(CONNECTIONS),
        }
    )
    threads = ThreadPoolExecutor(CONNECTIONS)

    def save(command: PlaceOrder) -> str:
        lines = [[line.sku, line.quantity, line.unit_price] for line in command.lines]
        order = Order(
            command.order_id,
            command.customer_id,
            command.country,
            command.currency,
            lines,
            placed(command).gross,
        )
        store.save(order)
        return str(order.id)

    async def execute(command: PlaceOrder, _identity: str, _write: Write) -> str:
        return await asyncio.get_running_loop().run_in_executor(threads, save, command)

    serve_orders("event-store", execute)


if __name__ == "__main__":
    main()
