"""Orders whose outgoing commands have waited too long for an outcome, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, TypeAdapter

from services.edge.app import api_router
from services.kernel.record.envelope import format_time, now_micros
from services.projection.engine.read_model import Connection
from services.projection.engine.staleness import Stale
from services.projection.parameters import (
    PAGE,
    Cursor,
    Duration,
    Limit,
    Name,
    Number,
    from_cursor,
    to_cursor,
)
from services.projection.read_docs import NEXT, RECORDED, Time, of_page
from services.projection.read_models import CONVERSATIONS
from services.projection.reader import ReadRoute, Reads

STUCK = {
    "order_id": "536365",
    "version": 1,
    "since": RECORDED,
    "awaits": [{"step": "reserve", "sku": "85123A", "return_number": 0, "since": RECORDED}],
}
_KEYS = TypeAdapter(tuple[Number, Name])
_PAGE = """
SELECT * FROM conversations.conversation
WHERE since IS NOT NULL AND since <= $1 AND ($2::timestamptz IS NULL OR (since, order_id) > ($2, $3))
ORDER BY since, order_id LIMIT $4"""

router = api_router("conversations", route_class=ReadRoute)


class AwaitedOutcome(BaseModel):
    """`step`: reserve, release, issue, or return with its number."""

    step: str
    sku: str
    return_number: int
    since: Time


class StuckOrder(BaseModel):
    """An order and the outcomes that it waits for."""

    order_id: str
    version: int
    since: Time
    awaits: list[AwaitedOutcome]
    stale: Stale = None


class StuckPage(BaseModel):
    """Those that have waited longest first."""

    conversations: list[StuckOrder]
    next: str | None
    stale: Stale = None


@router.get(
    "/conversations/stuck",
    summary="Orders that have waited too long for stock",
    **of_page("A page of them", {"conversations": [STUCK], "next": NEXT}),
)
async def list_stuck_conversations(
    reads: Reads,
    older_than: Annotated[
        Duration | None, Query(description="Waiting for longer than this: `300`, `30s`.")
    ] = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
) -> StuckPage:
    age = reads.sources.settings.stuck_seconds if older_than is None else older_than
    after = from_cursor(cursor, _KEYS)
    async with reads.connection(CONVERSATIONS) as connection:
        page = await _stuck(connection, now_micros() - int(age * 1_000_000), after, limit)
        rows = {conversation.order_id: conversation for conversation in page.conversations}
        await reads.label_page(connection, CONVERSATIONS, page, rows)
    return page


async def _stuck(
    connection: Connection, waiting_since: int, after: tuple[int, str] | None, limit: int
) -> StuckPage:
    """Those that wait since `waiting_since` (micros UTC, recorded time) or longer, the oldest first."""
    rows = await connection.fetch(_PAGE, waiting_since, *(after or (None, None)), limit + 1)
    conversations = [
        StuckOrder(
            order_id=row["order_id"],
            version=row["version"],
            since=format_time(row["since"]),
            awaits=[
                AwaitedOutcome(step=step, sku=sku, return_number=number, since=format_time(since))
                for step, sku, number, since in row["awaits"]
            ],
        )
        for row in rows[:limit]
    ]
    more = len(rows) > limit
    last = rows[limit - 1] if more else None
    return StuckPage(
        conversations=conversations,
        next=to_cursor((last["since"], last["order_id"])) if last is not None else None,
    )
