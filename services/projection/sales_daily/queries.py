"""Daily sales, read."""

from __future__ import annotations

from datetime import date

from services.edge.money import decimal_text
from services.kernel.read_model import Connection
from services.projection.answers import SalesDay, SalesPage
from services.projection.parameters import to_cursor

_PAGE = """
SELECT * FROM sales_daily.sales_daily
WHERE ($1::date IS NULL OR day >= $1) AND ($2::date IS NULL OR day <= $2)
  AND ($3::text IS NULL OR country = $3)
  AND ($4::date IS NULL OR (day, country, currency) > ($4, $5, $6))
ORDER BY day, country, currency LIMIT $7"""


async def page(
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
    return SalesPage(days, to_cursor((days[-1].day, days[-1].country, days[-1].currency)) if more else None)
