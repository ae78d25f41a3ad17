"""Orders whose outgoing commands have waited too long for an outcome, over HTTP."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, TypeAdapter

from services.edge.app import api_router
from services.edge.identity import scopes
from services.kernel.record.envelope import now_micros
from services.projection.engine.visibility import Stale
from services.projection.read_models import CONVERSATIONS
from services.projection.reads import (
    NEXT,
    PAGE,
    RECORDED,
    Cursor,
    Duration,
    Limit,
    Name,
    Number,
    ReadRoute,
    Reads,
    Time,
    from_cursor,
    of_page,
    page_of,
)

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

router = api_router("conversations", route_class=ReadRoute, dependencies=[scopes("ops:read")])


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
    waiting_since = now_micros() - int(age * 1_000_000)
    after = from_cursor(cursor, _KEYS) or (None, None)
    async with reads.connection(CONVERSATIONS) as connection:
        rows = await connection.fetch(_PAGE, waiting_since, *after, limit + 1)
        rows, following = page_of(rows, limit, "since", "order_id")
        page = StuckPage(conversations=[_stuck(row) for row in rows], next=following)
        stuck = {conversation.order_id: conversation for conversation in page.conversations}
        await reads.label_page(connection, CONVERSATIONS, page, stuck)
    return page


def _stuck(row: Mapping[str, Any]) -> StuckOrder:
    awaits = [
        AwaitedOutcome(step=step, sku=sku, return_number=number, since=since)
        for step, sku, number, since in row["awaits"]
    ]
    return StuckOrder(order_id=row["order_id"], version=row["version"], since=row["since"], awaits=awaits)
