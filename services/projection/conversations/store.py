"""Conversations in PostgreSQL: rows by order id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.projection.conversations.fold import Awaited, Conversation
from services.projection.engine.columns import columns, upsert
from services.projection.engine.read_model import Connection, StoreIn, Versioned

COLUMNS = {"order_id": "text", "version": "bigint", "since": "timestamptz", "awaits": "jsonb"}


class ConversationStore:
    def __init__(self, schema: str) -> None:
        self._load = f"SELECT order_id, version, awaits FROM {schema}.conversation WHERE order_id = ANY($1)"
        self._save = upsert(f"{schema}.conversation", COLUMNS, "order_id")
        self._forget = f"DELETE FROM {schema}.conversation WHERE order_id = $1"

    async def load(self, connection: Connection, keys: Sequence[str]) -> dict[str, Versioned[Conversation]]:
        return {
            row["order_id"]: Versioned(
                Conversation(tuple(Awaited(*one) for one in row["awaits"])), row["version"]
            )
            for row in await connection.fetch(self._load, keys)
        }

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[Conversation]]) -> None:
        versions = [conversation.version for conversation in rows.values()]
        values = columns([conversation.row for conversation in rows.values()], ["since", "awaits"])
        await connection.execute(self._save, list(rows), versions, *values)

    async def forget(self, connection: Connection, key: str, _: Conversation) -> None:
        await connection.execute(self._forget, key)


STORE: StoreIn[Conversation] = ConversationStore
