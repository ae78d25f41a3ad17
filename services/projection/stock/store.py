"""Stock in PostgreSQL: rows by SKU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.kernel.read_model import Connection
from services.projection.columns import columns, upsert
from services.projection.stock.project import Stock

COLUMNS = {
    "sku": "text",
    "version": "bigint",
    "event_id": "text",
    "lineage": "jsonb",
    "changed_at": "timestamptz",
    "received": "bigint",
    "adjusted": "bigint",
    "returned": "bigint",
    "issued": "bigint",
    "reserved": "bigint",
}


class StockStore:
    def __init__(self, schema: str) -> None:
        self._load = f"SELECT * FROM {schema}.stock WHERE sku = ANY($1)"
        self._save = upsert(f"{schema}.stock", COLUMNS, "sku")
        self._forget = f"DELETE FROM {schema}.stock WHERE sku = $1"

    async def load(self, connection: Connection, keys: Sequence[str]) -> dict[str, Stock]:
        return {row["sku"]: stock_of(row) for row in await connection.fetch(self._load, keys)}

    async def save(self, connection: Connection, rows: Mapping[str, Stock]) -> None:
        await connection.execute(self._save, *columns(rows.values(), list(COLUMNS)))

    async def forget(self, connection: Connection, key: str, _: Stock) -> None:
        await connection.execute(self._forget, key)


def stock_of(row: Mapping[str, Any]) -> Stock:
    lineage = tuple((epoch, first) for epoch, first in row["lineage"])
    return Stock(**{**{name: row[name] for name in COLUMNS}, "lineage": lineage})
