"""Stock and baskets: five literal rows in, rows out."""

from datetime import timedelta

from pyspark.sql import SparkSession

from analytics.marts.customers import MOST_SKUS, basket_pairs, customer_skus
from analytics.marts.stock import stock_ledger, stockouts
from tests.unit.analytics.shop_frames import DAY, LINES, MONDAY, SCHEMAS, collected, order_rows

MOVEMENTS = "sku string, kind string, quantity int, occurred_at timestamp"


def test_the_ledger_of_a_sku(spark: SparkSession) -> None:
    movements = [
        ("A", "received", 10, MONDAY),
        ("A", "reserved", 4, MONDAY),
        ("A", "issued", 4, MONDAY + 3 * DAY),
        ("A", "adjusted", -1, MONDAY + 3 * DAY),
        ("B", "received", 1, MONDAY),
    ]
    first, later = MONDAY.date(), (MONDAY + 3 * DAY).date()
    assert collected(stock_ledger(spark.createDataFrame(movements, MOVEMENTS))) == [
        ("A", first, 0, 10, 0, 0, 0, 10, 4, 0, 4),
        ("A", later, 10, 0, 0, -1, 4, 5, 0, 0, 0),
        ("B", first, 0, 1, 0, 0, 0, 1, 0, 0, 0),
    ]


def test_a_release_gives_up_what_is_held_and_moves_nothing(spark: SparkSession) -> None:
    movements = [
        ("A", "received", 5, MONDAY),
        ("A", "reserved", 3, MONDAY),
        ("A", "released", 3, MONDAY + DAY),
        ("A", "released", 0, MONDAY + DAY),
        ("A", "returned", 2, MONDAY + DAY),
    ]
    frame = stock_ledger(spark.createDataFrame(movements, MOVEMENTS))
    assert collected(frame, "opening", "closing", "released", "held") == [(0, 5, 0, 3), (5, 7, 3, 0)]


def test_a_day_ends_at_midnight_utc(spark: SparkSession) -> None:
    midnight = MONDAY.replace(hour=0) + DAY
    movements = [("A", "received", 1, midnight - timedelta(microseconds=1)), ("A", "received", 2, midnight)]
    frame = stock_ledger(spark.createDataFrame(movements, MOVEMENTS))
    assert collected(frame, "day", "received") == [(MONDAY.date(), 1), (midnight.date(), 2)]


def test_what_was_short_and_what_it_cost(spark: SparkSession) -> None:
    orders = order_rows(
        spark,
        [
            ("a", None, MONDAY, 900, 0, False),
            ("b", "c-1", MONDAY + DAY, 70, 0, False),
            ("c", None, MONDAY, 5, 0, True),
        ],
    )
    rejected = spark.createDataFrame(
        [("a", MONDAY, ["S", "T"]), ("b", MONDAY + DAY, ["S"])], SCHEMAS["rejected"]
    )
    lines = [("a", "S", 2, 20), ("a", "S", 1, 11), ("a", "T", 1, 5), ("b", "S", 4, 40), ("c", "S", 1, 9)]
    first, second = MONDAY.date(), (MONDAY + DAY).date()
    assert collected(stockouts(rejected, spark.createDataFrame(lines, LINES), orders)) == [
        ("S", "GBP", 2, 7, 71, 970, first, second),
        ("T", "GBP", 1, 1, 5, 900, first, first),
    ]


def test_a_customer_and_an_article(spark: SparkSession) -> None:
    orders = order_rows(
        spark,
        [
            ("a", "c-1", MONDAY, 0, 0, True),
            ("b", "c-1", MONDAY + DAY, 0, 0, True),
            ("c", None, MONDAY, 0, 0, True),
            ("d", "c-1", MONDAY, 0, 0, False),
        ],
    )
    lines = [
        ("a", "S", 2, 20),
        ("a", "S", 1, 11),
        ("b", "S", 3, 30),
        ("b", "T", 1, 7),
        ("c", "S", 1, 9),
        ("d", "S", 1, 9),
    ]
    refunded = spark.createDataFrame(
        [("b", "S", 2, 20), ("c", "S", 1, 9)], "order_id string, sku string, quantity int, refund long"
    )
    second = (MONDAY + DAY).date()
    assert collected(customer_skus(orders, spark.createDataFrame(lines, LINES), refunded)) == [
        ("c-1", "S", "GBP", 2, 6, 61, 2, 20, second),
        ("c-1", "T", "GBP", 1, 1, 7, 0, 0, second),
    ]


def test_pairs_that_are_bought_together(spark: SparkSession) -> None:
    orders = order_rows(spark, [(key, None, MONDAY, 0, 0, key != "e") for key in "abcde"])
    contents = {"a": "ST", "b": "STU", "c": "S", "d": "UVS", "e": "ST"}
    lines = [(key, sku, 1, 1) for key, skus in contents.items() for sku in skus + skus[0]]
    assert collected(basket_pairs(orders, spark.createDataFrame(lines, LINES))) == [
        ("S", "T", 4, 4, 2, 2, 0.5, 0.5, 1.0, 1.0),
        ("S", "U", 4, 4, 2, 2, 0.5, 0.5, 1.0, 1.0),
    ]


def test_a_basket_that_is_too_large_is_left_out(spark: SparkSession) -> None:
    orders = order_rows(spark, [(key, None, MONDAY, 0, 0, True) for key in "abc"])
    lines = [(key, sku, 1, 1) for key in "abc" for sku in ("S", "T")]
    lines += [("c", f"X{number:03}", 1, 1) for number in range(MOST_SKUS - 1)]
    frame = basket_pairs(orders, spark.createDataFrame(lines, LINES))
    assert collected(frame, "sku_a", "sku_b", "baskets", "baskets_both") == [("S", "T", 2, 2)]
