"""Stock over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter

from services.edge.app import api_router
from services.kernel.record.envelope import format_time
from services.projection.engine.read_model import Connection, Versioned
from services.projection.engine.staleness import Stale, stale
from services.projection.parameters import (
    PAGE,
    SEGMENT_PATTERN,
    Cursor,
    Limit,
    Name,
    Number,
    from_cursor,
    to_cursor,
    whole,
)
from services.projection.read_docs import RECORDED, Time, of_entity, of_page
from services.projection.read_models import STOCK
from services.projection.reader import ReadRoute, Reads, missing
from services.projection.stock.fold import StockRow
from services.projection.stock.store import stock_of

LEVEL = {
    "sku": "85123A",
    "version": 3,
    "changed_at": RECORDED,
    "on_hand": 1000,
    "reserved": 6,
    "available": 994,
    "received": 1000,
    "adjusted": 0,
    "returned": 0,
    "issued": 0,
}
NEXT = to_cursor((994, "85123A"))
_KEYS = TypeAdapter(tuple[Number, Name])
_PAGE = """
SELECT * FROM stock.stock
WHERE ($1::bigint IS NULL OR available < $1) AND ($2::bigint IS NULL OR (available, sku) > ($2, $3))
ORDER BY available, sku LIMIT $4"""

router = api_router("stock", route_class=ReadRoute)


class StockLevel(BaseModel):
    """Units. `on_hand` = received + adjusted + returned − issued; `available` = on_hand − reserved.
    `stale`: `parked` if later events wait for an operator."""

    sku: str
    version: int
    changed_at: Time
    on_hand: int
    reserved: int
    available: int
    received: int
    adjusted: int
    returned: int
    issued: int
    stale: Stale = None


class StockPage(BaseModel):
    """The scarcest first."""

    stock: list[StockLevel]
    next: str | None
    stale: Stale = None


@router.get(
    "/stock/{sku}", summary="The stock of one SKU", **of_entity("stock", "The stock of the SKU", LEVEL)
)
async def get_stock(
    sku: Annotated[
        str, Path(pattern=SEGMENT_PATTERN, description="The stock keeping unit.", examples=["85123A"])
    ],
    reads: Reads,
) -> StockLevel:
    async with reads.connection(STOCK) as connection:
        row = await connection.fetchrow("SELECT * FROM stock.stock WHERE sku = $1", sku)
        staleness = await stale(connection, STOCK, sku)
    if row is None:
        raise missing("stock", sku, STOCK, staleness)
    level = _level(stock_of(row), staleness)
    reads.label(staleness, level.version)
    return level


@router.get(
    "/stock",
    summary="Stock, the scarcest first",
    **of_page("A page of it", {"stock": [LEVEL], "next": NEXT}),
)
async def list_stock(
    reads: Reads,
    below: Annotated[
        Annotated[int, Field(ge=-(10**12), le=10**12), BeforeValidator(whole)] | None,
        Query(description="Only where fewer are available.", examples=[10]),
    ] = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
) -> StockPage:
    after = from_cursor(cursor, _KEYS)
    async with reads.connection(STOCK) as connection:
        page = await _page(connection, below, after, limit)
        await reads.label_page(connection, STOCK, page, {level.sku: level for level in page.stock})
    return page


async def _page(
    connection: Connection, below: int | None, after: tuple[int, str] | None, limit: int
) -> StockPage:
    """The scarcest first; `below` bounds what is available."""
    rows = await connection.fetch(_PAGE, below, *(after or (None, None)), limit + 1)
    levels = [_level(stock_of(row)) for row in rows[:limit]]
    more = len(rows) > limit
    return StockPage(stock=levels, next=to_cursor((levels[-1].available, levels[-1].sku)) if more else None)


def _level(stored: Versioned[StockRow], staleness: Stale = None) -> StockLevel:
    stock = stored.row
    return StockLevel(
        sku=stock.sku,
        version=stored.version,
        changed_at=format_time(stored.changed_at),
        on_hand=stock.on_hand,
        reserved=stock.reserved,
        available=stock.available,
        received=stock.received,
        adjusted=stock.adjusted,
        returned=stock.returned,
        issued=stock.issued,
        stale=staleness,
    )
