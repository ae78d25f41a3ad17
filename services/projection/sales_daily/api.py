"""Daily sales over HTTP."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field, TypeAdapter

from services.edge.app import api_router
from services.edge.money import decimal_text
from services.projection.engine.read_model import Connection
from services.projection.engine.staleness import Stale
from services.projection.parameters import (
    PAGE,
    Country,
    Cursor,
    Day,
    Limit,
    Name,
    from_cursor,
    to_cursor,
)
from services.projection.read_docs import Money, of_page
from services.projection.read_models import SALES_DAILY
from services.projection.reader import ReadRoute, Reads

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

router = api_router("sales", route_class=ReadRoute)


class SalesDay(BaseModel):
    """One day's sales in one country and currency; `net` is `gross` less `returned`."""

    day: Annotated[str, Field(json_schema_extra={"format": "date"})]
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
    after = from_cursor(cursor, _KEYS)
    async with reads.connection(SALES_DAILY) as connection:
        page = await _page(connection, first, last, country, after, limit)
        await reads.label_page(connection, SALES_DAILY, page)
    return page


async def _page(
    connection: Connection,
    first: date | None,
    last: date | None,
    country: str | None,
    after: tuple[date, str, str] | None,
    limit: int,
) -> SalesPage:
    """By day, country and currency; both days are included."""
    rows = await connection.fetch(_PAGE, first, last, country, *(after or (None, None, None)), limit + 1)
    days = [
        SalesDay(
            day=row["day"].isoformat(),
            country=row["country"],
            currency=row["currency"],
            orders=row["orders"],
            units=row["units"],
            gross=decimal_text(row["gross"]),
            returned=decimal_text(row["returned"]),
            net=decimal_text(row["net"]),
        )
        for row in rows[:limit]
    ]
    more = len(rows) > limit
    return SalesPage(
        days=days, next=to_cursor((days[-1].day, days[-1].country, days[-1].currency)) if more else None
    )
