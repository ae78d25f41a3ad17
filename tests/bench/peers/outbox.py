"""A transactional outbox: the order's row and its event's row in one PostgreSQL transaction, 16 connections.

The event is stored as it goes to the log later, encoded and with its headers, so that a relay only copies it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
from fastapi import FastAPI

from contracts.order.commands import PlaceOrder
from contracts.order.events import OrderPlaced
from services.edge.writes import Write
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, uuid7, write_headers
from tests.bench.peers.front import serve_orders

CONNECTIONS = 16
SCHEMA = """
CREATE SCHEMA IF NOT EXISTS peer;
CREATE TABLE IF NOT EXISTS peer.orders (
    order_id text PRIMARY KEY, customer_id text, status text NOT NULL, version int NOT NULL,
    gross bigint NOT NULL, document jsonb NOT NULL);
CREATE TABLE IF NOT EXISTS peer.outbox (
    id bigserial PRIMARY KEY, key text NOT NULL, value bytea NOT NULL, headers bytea NOT NULL);
"""
_ORDER = "INSERT INTO peer.orders VALUES ($1, $2, 'placed', 1, $3, $4)"
_OUTBOX = "INSERT INTO peer.outbox (key, value, headers) VALUES ($1, $2, $3)"

_pool: asyncpg.Pool[Any]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    global _pool
    async with asyncpg.create_pool(
        os.environ["DAYBOOK_DATABASE_URL"], min_size=CONNECTIONS, max_size=CONNECTIONS
    ) as _pool:
        async with _pool.acquire() as connection:
            await connection.execute(SCHEMA)
        yield


async def place(command: PlaceOrder, identity: str, write: Write) -> str:
    """Insert both rows, or none."""
    event = placed(command)
    metadata = Metadata(
        id=uuid7(),
        type=OrderPlaced.TYPE,
        subject=command.order_id,
        source="peer/outbox",
        recorded_at=now_micros(),
        correlation_id=write.correlation_id,
        causation_id=identity,
        epoch=1,
        version=1,
        request_hash=write.fingerprint,
    )
    value = encode("order.events", event)
    headers = msgspec.msgpack.encode(write_headers(metadata))
    document = msgspec.json.encode(command).decode()
    async with _pool.acquire() as connection, connection.transaction():
        await connection.execute(_ORDER, command.order_id, command.customer_id, event.gross, document)
        await connection.execute(_OUTBOX, command.order_id, value, headers)
    return metadata.id


def placed(command: PlaceOrder) -> OrderPlaced:
    """The event of an accepted command."""
    gross = sum([line.quantity * line.unit_price for line in command.lines])
    return OrderPlaced(
        order_id=command.order_id,
        country=command.country,
        currency=command.currency,
        occurred_at=command.occurred_at,
        lines=command.lines,
        customer_id=command.customer_id,
        charges=command.charges,
        gross=gross + sum([charge.amount for charge in command.charges]),
        settle_by=command.settle_by,
    )


if __name__ == "__main__":
    serve_orders("outbox", place, lifespan)
