"""Five literal rows in, rows out."""

from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from analytics.marts.orders import daily_revenue

CONFIRMED = "order_id string, day date, country string, currency string, units int, gross long"
CANCELLED = CONFIRMED + ", confirmed boolean"
RETURNED = (
    "order_id string, return_number int, day date, country string, currency string, units int, refund long"
)
MONDAY, TUESDAY = date(2011, 3, 7), date(2011, 3, 8)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def revenue(spark: SparkSession, confirmed: Any, cancelled: Any, returned: Any) -> list[tuple[Any, ...]]:
    frames = ((confirmed, CONFIRMED), (cancelled, CANCELLED), (returned, RETURNED))
    return rows(daily_revenue(*(spark.createDataFrame(content, schema) for content, schema in frames)))


def test_orders_cancellations_and_returns_add_up(spark: SparkSession) -> None:
    assert revenue(
        spark,
        confirmed=[
            ("a", MONDAY, "Norway", "GBP", 3, 7_650_000),
            ("b", MONDAY, "Norway", "GBP", 2, 5_000_000),
            ("c", MONDAY, "France", "GBP", 1, 1),
        ],
        cancelled=[("b", MONDAY, "Norway", "GBP", 2, 5_000_000, True)],
        returned=[("a", 1, TUESDAY, "Norway", "GBP", 1, 2_550_000)],
    ) == [
        (MONDAY, "France", "GBP", 1, 0, 1, 1, 1),
        (MONDAY, "Norway", "GBP", 7_650_000, 0, 7_650_000, 1, 3),
        (TUESDAY, "Norway", "GBP", 0, 2_550_000, -2_550_000, 0, 0),
    ]


def test_an_order_cancelled_before_it_was_confirmed_never_counted(spark: SparkSession) -> None:
    assert revenue(spark, [], [("b", MONDAY, "Norway", "GBP", 2, 5_000_000, False)], []) == []


def test_currencies_are_not_added(spark: SparkSession) -> None:
    confirmed = [("a", MONDAY, "Norway", "GBP", 1, 10), ("b", MONDAY, "Norway", "NOK", 1, 100)]
    assert [row[2:4] for row in revenue(spark, confirmed, [], [])] == [("GBP", 10), ("NOK", 100)]
