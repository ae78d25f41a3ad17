"""Daily sales in PostgreSQL: additions to days, and the last version that each order has added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from services.projection.engine.columns import unnest, upsert
from services.projection.engine.read_model import Connection, StoreIn, Versioned
from services.projection.sales_daily.fold import Change, Day, Sales

DAYS = {
    "day": "date",
    "country": "text",
    "currency": "text",
    "orders": "bigint",
    "units": "bigint",
    "gross": "bigint",
    "returned": "bigint",
    "changes": "bigint",
}
SUMS = ("orders", "units", "gross", "returned", "changes")


class SalesStore:
    def __init__(self, schema: str) -> None:
        added = ", ".join(f"{name} = d.{name} + excluded.{name}" for name in SUMS)
        self._load = f"SELECT order_id, version FROM {schema}.applied WHERE order_id = ANY($1)"
        self._save = upsert(f"{schema}.applied", {"order_id": "text", "version": "bigint"}, "order_id")
        self._add = (
            f"INSERT INTO {schema}.sales_daily AS d {unnest(DAYS)} "
            f"ON CONFLICT (day, country, currency) DO UPDATE SET {added}"
        )
        self._forget = (
            f"DELETE FROM {schema}.applied WHERE order_id = $1",
            f"DELETE FROM {schema}.sales_daily WHERE changes = 0",
        )

    async def load(self, connection: Connection, keys: Sequence[str]) -> dict[str, Versioned[Sales]]:
        rows = await connection.fetch(self._load, keys)
        return {row["order_id"]: Versioned(Sales(), row["version"]) for row in rows}

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[Sales]]) -> None:
        await connection.execute(self._save, list(rows), [row.version for row in rows.values()])
        await self._change(connection, [change for sales in rows.values() for change in sales.row.changes], 1)

    async def forget(self, connection: Connection, key: str, row: Sales) -> None:
        """What is left of a day to which nothing else was added is removed."""
        taken = [Change(change.day, *(-amount for amount in change[1:])) for change in row.changes]
        await self._change(connection, taken, -1)
        for statement, values in zip(self._forget, ([key], []), strict=True):
            await connection.execute(statement, *values)

    async def _change(self, connection: Connection, changes: Sequence[Change], sign: int) -> None:
        counts = Counter(change.day for change in changes)
        if counts:
            rows = ((*change.day, *change[1:], sign * counts[change.day]) for change in total(changes))
            await connection.execute(self._add, *map(list, zip(*rows, strict=True)))


STORE: StoreIn[Sales] = SalesStore


def total(changes: Iterable[Change]) -> list[Change]:
    """One change per day, in order, so that two writers would never wait for each other in a circle."""
    sums: dict[Day, Change] = {}
    for change in changes:
        before = sums.get(change.day, Change(change.day))
        sums[change.day] = Change(
            change.day,
            before.orders + change.orders,
            before.units + change.units,
            before.gross + change.gross,
            before.returned + change.returned,
        )
    return [sums[day] for day in sorted(sums)]
