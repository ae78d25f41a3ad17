"""Orders in PostgreSQL: rows by order id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from contracts.order.events import Charge, Line
from services.projection.engine.columns import ENGINE_COLUMNS, columns, unnest, upsert, versioned_row
from services.projection.engine.read_model import Connection, StoreIn, Versioned
from services.projection.orders.fold import Content, Order

COLUMNS = {
    "order_id": "text",
    "status": "text",
    "customer_id": "text",
    "country": "text",
    "currency": "text",
    "placed_at": "timestamptz",
    "units": "bigint",
    "gross": "bigint",
    "refunded": "bigint",
    "returned": "jsonb",
    "carrier": "text",
    "reference": "text",
    "reason": "text",
}
CONTENT = {"order_id": "text", "lines": "jsonb", "charges": "jsonb"}


class OrderStore:
    def __init__(self, schema: str) -> None:
        self._load = f"SELECT * FROM {schema}.orders WHERE order_id = ANY($1)"
        self._save = upsert(f"{schema}.orders", ENGINE_COLUMNS | COLUMNS, "order_id", lists=["short"])
        self._content = f"INSERT INTO {schema}.content {unnest(CONTENT)}"
        self._forget = [
            f"DELETE FROM {schema}.{table} WHERE order_id = $1" for table in ("orders", "content")
        ]

    async def load(self, connection: Connection, keys: Sequence[str]) -> dict[str, Versioned[Order]]:
        return {row["order_id"]: order_of(row) for row in await connection.fetch(self._load, keys)}

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[Order]]) -> None:
        orders = [order.row for order in rows.values()]
        engine = columns(rows.values(), list(ENGINE_COLUMNS))
        await connection.execute(self._save, *engine, *columns(orders, [*COLUMNS, "short"]))
        new = [(order.order_id, order.content) for order in orders if order.content is not None]
        if new:
            contents = [content for _, content in new]
            values = [[order_id for order_id, _ in new], *columns(contents, ["lines", "charges"])]
            await connection.execute(self._content, *values)

    async def forget(self, connection: Connection, key: str, _: Order) -> None:
        for statement in self._forget:
            await connection.execute(statement, key)


STORE: StoreIn[Order] = OrderStore


def order_of(row: Mapping[str, Any], content: Content | None = None) -> Versioned[Order]:
    """An order from a record of `orders`, and what was ordered where that was read."""
    values = {name: row[name] for name in COLUMNS}
    return versioned_row(row, Order(**values, short=tuple(row["short"]), content=content))


def content_of(row: Mapping[str, Any]) -> Content:
    lines = msgspec.convert(row["lines"], tuple[Line, ...])
    return Content(lines, msgspec.convert(row["charges"], tuple[Charge, ...]))
