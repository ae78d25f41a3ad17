"""Stock in PostgreSQL: rows by SKU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.projection.engine.columns import ENGINE_COLUMNS, columns, upsert, versioned_row
from services.projection.engine.read_model import Connection, StoreIn, Versioned
from services.projection.stock.fold import StockRow

COLUMNS = {
    "sku": "text",
    "received": "bigint",
    "adjusted": "bigint",
    "returned": "bigint",
    "issued": "bigint",
    "reserved": "bigint",
}


class StockStore:
    def __init__(self, schema: str) -> None:
        self._load = f"SELECT * FROM {schema}.stock WHERE sku = ANY($1)"
        self._save = upsert(f"{schema}.stock", ENGINE_COLUMNS | COLUMNS, "sku")
        self._forget = f"DELETE FROM {schema}.stock WHERE sku = $1"

    async def load(self, connection: Connection, keys: Sequence[str]) -> dict[str, Versioned[StockRow]]:
        return {row["sku"]: stock_of(row) for row in await connection.fetch(self._load, keys)}

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[StockRow]]) -> None:
        stocks = [stock.row for stock in rows.values()]
        engine = columns(rows.values(), list(ENGINE_COLUMNS))
        await connection.execute(self._save, *engine, *columns(stocks, list(COLUMNS)))

    async def forget(self, connection: Connection, key: str, _: StockRow) -> None:
        await connection.execute(self._forget, key)


STORE: StoreIn[StockRow] = StockStore


def stock_of(row: Mapping[str, Any]) -> Versioned[StockRow]:
    """A SKU's stock from a record of its table."""
    return versioned_row(row, StockRow(**{name: row[name] for name in COLUMNS}))
