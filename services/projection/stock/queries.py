"""Stock, read."""

from __future__ import annotations

from services.kernel.envelope import format_time
from services.kernel.read_model import Connection, Versioned
from services.projection.answers import StockAnswer, StockPage
from services.projection.parameters import to_cursor
from services.projection.stale import Stale
from services.projection.stock.fold import Stock
from services.projection.stock.store import stock_of

_PAGE = """
SELECT * FROM stock.stock
WHERE ($1::bigint IS NULL OR available < $1) AND ($2::bigint IS NULL OR (available, sku) > ($2, $3))
ORDER BY available, sku LIMIT $4"""


async def one(connection: Connection, sku: str) -> Versioned[Stock] | None:
    row = await connection.fetchrow("SELECT * FROM stock.stock WHERE sku = $1", sku)
    return None if row is None else stock_of(row)


async def page(
    connection: Connection, below: int | None, after: tuple[int, str] | None, limit: int
) -> StockPage:
    """The scarcest first; `below` bounds what is available."""
    rows = await connection.fetch(_PAGE, below, *(after or (None, None)), limit + 1)
    found = [stock_of(row) for row in rows[:limit]]
    more = len(rows) > limit
    last = found[-1].row if more else None
    return StockPage(
        [answer(stock) for stock in found], to_cursor((last.available, last.sku)) if last else None
    )


def answer(found: Versioned[Stock], stale: Stale = None) -> StockAnswer:
    stock = found.row
    return StockAnswer(
        sku=stock.sku,
        version=found.version,
        changed_at=format_time(found.changed_at),
        on_hand=stock.on_hand,
        reserved=stock.reserved,
        available=stock.available,
        received=stock.received,
        adjusted=stock.adjusted,
        returned=stock.returned,
        issued=stock.issued,
        stale=stale,
    )
