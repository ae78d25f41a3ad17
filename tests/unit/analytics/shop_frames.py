"""Staging frames from plain tuples; whole lives of orders for the properties."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

MONDAY = datetime(2011, 3, 7, 9)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SCHEMAS = {
    "placed": """order_id string, customer_id string, country string, currency string, units long, gross long,
        placed_at timestamp, recorded_at timestamp""",
    "confirmed": """order_id string, day date, country string, currency string, units int, gross long,
        at timestamp, recorded_at timestamp""",
    "rejected": "order_id string, at timestamp, short array<string>",
    "cancelled": """order_id string, day date, country string, currency string, units int, gross long,
        confirmed boolean, at timestamp""",
    "expired": "order_id string, at timestamp",
    "shipped": "order_id string, at timestamp",
    "returned": """order_id string, return_number int, day date, country string, currency string, units int,
        refund long, complete boolean, at timestamp""",
}
ORDERS = """order_id string, customer_id string, country string, currency string, units long, gross long,
    returned_units long, refund long, sold boolean, returned_whole boolean, placed_at timestamp,
    confirmed_at timestamp, rejected_at timestamp, cancelled_at timestamp, expired_at timestamp,
    shipped_at timestamp, returned_at timestamp, confirming_seconds double"""
LINES = "order_id string, sku string, quantity int, value long"


@dataclass(frozen=True)
class Life:
    """An order and how it ended. `fate`: placed, rejected, cancelled, confirmed, undone (cancelled after it
    was confirmed), expired, shipped, part or whole (came back)."""

    order_id: str
    fate: str
    customer_id: str | None = None
    currency: str = "GBP"
    units: int = 2
    gross: int = 5_000_000
    refund: int = 1_000_000
    placed_at: datetime = MONDAY
    shipped_after: timedelta = 6 * HOUR
    returned_after: timedelta = 2 * DAY

    @property
    def confirmed(self) -> bool:
        return self.fate in ("confirmed", "undone", "shipped", "part", "whole")


def life_frames(spark: SparkSession, lives: Sequence[Life]) -> dict[str, DataFrame]:
    """The frames that `analytics.marts.orders` takes, by name."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
    for life in lives:
        _live(life, rows)
    return {name: spark.createDataFrame(rows[name], schema) for name, schema in SCHEMAS.items()}


def _live(life: Life, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    key, at, day = life.order_id, life.placed_at, life.placed_at.date()
    own = ("Norway", life.currency, life.units, life.gross)
    rows["placed"].append((key, life.customer_id, *own, at, at))
    if life.confirmed:
        rows["confirmed"].append((key, day, *own, at, at + timedelta(seconds=2)))
    if life.fate == "rejected":
        rows["rejected"].append((key, at, ["S"]))
    if life.fate in ("cancelled", "undone"):
        rows["cancelled"].append((key, day, *own, life.confirmed, at + HOUR))
    if life.fate == "expired":
        rows["expired"].append((key, at + HOUR))
    if life.fate in ("shipped", "part", "whole"):
        rows["shipped"].append((key, at + life.shipped_after))
    if life.fate in ("part", "whole"):
        back = at + life.shipped_after + life.returned_after
        complete = life.fate == "whole"
        returned = (key, 1, back.date(), "Norway", life.currency, 1, life.refund, complete, back)
        rows["returned"].append(returned)


def order_rows(spark: SparkSession, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    """The mart `orders` of (order_id, customer_id, placed_at, gross, refund, sold); the rest is filler."""
    full = [
        (key, customer, "Norway", "GBP", 2, gross, 0, refund, sold, False, at, at if sold else None)
        + (None,) * 5
        + (1.0,)
        for key, customer, at, gross, refund, sold in rows
    ]
    return spark.createDataFrame(full, ORDERS)


def collected(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows, sorted; all columns unless some are named."""
    return sorted(tuple(row) for row in (frame.select(*columns) if columns else frame).collect())
