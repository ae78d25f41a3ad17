"""Conversations that take too long."""

from __future__ import annotations

from services.kernel.envelope import format_time
from services.kernel.read_model import Connection
from services.projection.answers import AwaitedAnswer, StuckConversation, StuckPage
from services.projection.parameters import to_cursor

_PAGE = """
SELECT * FROM conversations.conversation
WHERE since IS NOT NULL AND since <= $1 AND ($2::timestamptz IS NULL OR (since, order_id) > ($2, $3))
ORDER BY since, order_id LIMIT $4"""


async def stuck(
    connection: Connection, waiting_since: int, after: tuple[int, str] | None, limit: int
) -> StuckPage:
    """Those that wait since `waiting_since` (micros UTC, recorded time) or longer, the oldest first."""
    rows = await connection.fetch(_PAGE, waiting_since, *(after or (None, None)), limit + 1)
    found = [
        StuckConversation(
            row["order_id"],
            row["version"],
            format_time(row["since"]),
            [
                AwaitedAnswer(step, sku, number, format_time(since))
                for step, sku, number, since in row["awaits"]
            ],
        )
        for row in rows[:limit]
    ]
    more = len(rows) > limit
    last = rows[limit - 1] if more else None
    return StuckPage(found, to_cursor((last["since"], last["order_id"])) if last is not None else None)
