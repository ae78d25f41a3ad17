"""Histories in PostgreSQL: entries by order id and version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.projection.engine.columns import columns, unnest
from services.projection.engine.read_model import Connection, StoreIn, Versioned
from services.projection.order_history.fold import History

COLUMNS = {
    "order_id": "text",
    "version": "bigint",
    "event_id": "text",
    "type": "text",
    "recorded_at": "timestamptz",
    "occurred_at": "timestamptz",
    "epoch": "int",
    "source": "text",
    "correlation_id": "text",
    "causation_id": "text",
    "auth_type": "text",
    "auth_id": "text",
    "body": "jsonb",
}


class HistoryStore:
    def __init__(self, schema: str) -> None:
        self._load = (
            f"SELECT order_id, max(version) AS version FROM {schema}.entry "
            "WHERE order_id = ANY($1) GROUP BY order_id"
        )
        self._save = f"INSERT INTO {schema}.entry {unnest(COLUMNS)}"
        self._forget = f"DELETE FROM {schema}.entry WHERE order_id = $1"

    async def load(self, connection: Connection, keys: Sequence[str]) -> dict[str, Versioned[History]]:
        rows = await connection.fetch(self._load, keys)
        return {row["order_id"]: Versioned(History(), row["version"]) for row in rows}

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[History]]) -> None:
        entries = [entry for history in rows.values() for entry in history.row.entries]
        await connection.execute(self._save, *columns(entries, list(COLUMNS)))

    async def forget(self, connection: Connection, key: str, _: History) -> None:
        await connection.execute(self._forget, key)


STORE: StoreIn[History] = HistoryStore
