"""Stock over HTTP."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter

from services.edge.app import api_router
from services.edge.identity import scopes
from services.projection.engine.visibility import Stale, stale
from services.projection.read_models import STOCK
from services.projection.reads import (
    PAGE,
    RECORDED,
    SEGMENT_PATTERN,
    Cursor,
    Limit,
    Name,
    Number,
    ReadRoute,
    Reads,
    Time,
    from_cursor,
    missing,
    of_entity,
    of_page,
    page_of,
    to_cursor,
    whole,
)

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

router = api_router("stock", route_class=ReadRoute, dependencies=[scopes()])


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
    level = StockLevel(**row, stale=staleness)
    reads.label(staleness, level.version)
    return level


@router.get(
    "/stock", summary="Stock, the scarcest first", **of_page("A page of it", {"stock": [LEVEL], "next": NEXT})
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
    after = from_cursor(cursor, _KEYS) or (None, None)
    async with reads.connection(STOCK) as connection:
        rows = await connection.fetch(_PAGE, below, *after, limit + 1)
        rows, following = page_of(rows, limit, "available", "sku")
        page = StockPage(stock=[StockLevel(**row) for row in rows], next=following)
        await reads.label_page(connection, STOCK, page, {level.sku: level for level in page.stock})
    return page
