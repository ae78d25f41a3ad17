"""Daily sales over HTTP."""

from datetime import date
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, TypeAdapter

from services.edge.app import api_router
from services.edge.identity import scopes
from services.projection.engine.visibility import Stale
from services.projection.read_models import SALES_DAILY
from services.projection.reads import (
    PAGE,
    Country,
    Cursor,
    Day,
    Limit,
    Money,
    Name,
    ReadRoute,
    Reads,
    from_cursor,
    of_page,
    page_of,
    to_cursor,
)

DAY = {
    "day": "2010-12-01",
    "country": "United Kingdom",
    "currency": "GBP",
    "orders": 127,
    "units": 24_215,
    "gross": "46376.49",
    "returned": "325.02",
    "net": "46051.47",
}
NEXT = to_cursor(("2010-12-01", "United Kingdom", "GBP"))
_KEYS = TypeAdapter(tuple[date, Name, Name])
_PAGE = """
SELECT * FROM sales_daily.sales_daily
WHERE ($1::date IS NULL OR day >= $1) AND ($2::date IS NULL OR day <= $2)
  AND ($3::text IS NULL OR country = $3)
  AND ($4::date IS NULL OR (day, country, currency) > ($4, $5, $6))
ORDER BY day, country, currency LIMIT $7"""

router = api_router("sales", route_class=ReadRoute, dependencies=[scopes("sales:read")])


class SalesDay(BaseModel):
    """One day's sales in one country and currency; `net` is `gross` less `returned`."""

    day: date
    country: str
    currency: str
    orders: int
    units: int
    gross: Money
    returned: Money
    net: Money


class SalesPage(BaseModel):
    """By day, country and currency."""

    days: list[SalesDay]
    next: str | None
    stale: Stale = None


@router.get(
    "/sales/daily",
    summary="Sales per day, country and currency, by business time in UTC",
    **of_page("A page of them", {"days": [DAY], "next": NEXT}),
)
async def list_daily_sales(
    reads: Reads,
    first: Annotated[
        Day | None, Query(alias="from", description="First day.", examples=["2010-12-01"])
    ] = None,
    last: Annotated[Day | None, Query(alias="to", description="Last day.", examples=["2010-12-31"])] = None,
    country: Country = None,
    limit: Limit = PAGE,
    cursor: Cursor = None,
) -> SalesPage:
    """An order counts on its own day once it is confirmed, and is removed from that day when it is
    cancelled; a return counts on the day of the return."""
    after = from_cursor(cursor, _KEYS) or (None, None, None)
    async with reads.connection(SALES_DAILY) as connection:
        rows = await connection.fetch(_PAGE, first, last, country, *after, limit + 1)
        rows, following = page_of(rows, limit, "day", "country", "currency")
        page = SalesPage(days=[SalesDay(**row) for row in rows], next=following)
        await reads.label_page(connection, SALES_DAILY, page)
    return page
