"""Orders, funnel, customers: five literal rows in, rows out."""

from datetime import date, timedelta

from pyspark.sql import SparkSession

from analytics.marts.customers import customer_cohorts, customers, guests
from analytics.marts.orders import order_funnel, orders
from tests.unit.analytics.shop_frames import DAY, HOUR, MONDAY, Life, collected, life_frames, order_rows


def test_an_order_is_one_row_with_all_that_became_of_it(spark: SparkSession) -> None:
    lives = [Life("a", "part", customer_id="c-1"), Life("b", "undone"), Life("c", "rejected")]
    frame = orders(**life_frames(spark, lives))
    assert collected(frame, "order_id", "customer_id", "gross", "returned_units", "refund", "sold") == [
        ("a", "c-1", 5_000_000, 1, 1_000_000, True),
        ("b", None, 5_000_000, 0, 0, False),
        ("c", None, 5_000_000, 0, 0, False),
    ]
    whole = frame.where("order_id = 'a'").collect()[0]
    assert (whole["shipped_at"], whole["returned_at"]) == (MONDAY + 6 * HOUR, MONDAY + 6 * HOUR + 2 * DAY)
    assert (whole["returned_whole"], whole["confirming_seconds"]) == (False, 2.0)


def test_several_returns_of_an_order_add_up(spark: SparkSession) -> None:
    frames = life_frames(spark, [Life("a", "part"), Life("b", "whole")])
    again = (
        frames["returned"]
        .where("order_id = 'a'")
        .selectExpr("*")
        .withColumn("complete", ~frames["returned"]["complete"])
    )
    frames["returned"] = frames["returned"].unionByName(again)
    assert collected(orders(**frames), "order_id", "returned_units", "refund", "returned_whole") == [
        ("a", 2, 2_000_000, True),
        ("b", 1, 1_000_000, True),
    ]


def test_an_order_whose_placing_is_not_there_is_left_out(spark: SparkSession) -> None:
    frames = life_frames(spark, [Life("a", "shipped"), Life("b", "placed")])
    frames["placed"] = frames["placed"].where("order_id = 'b'")
    assert collected(orders(**frames), "order_id") == [("b",)]


def test_the_funnel_counts_the_orders_of_a_day_wherever_they_got_to(spark: SparkSession) -> None:
    lives = [
        Life("a", "whole", shipped_after=4 * HOUR, returned_after=3 * DAY),
        Life("b", "shipped", shipped_after=8 * HOUR),
        Life("c", "undone"),
        Life("d", "rejected"),
        Life("e", "expired", placed_at=MONDAY + DAY),
    ]
    day = MONDAY.date()
    assert collected(order_funnel(orders(**life_frames(spark, lives)))) == [
        (day, 4, 3, 2, 1, 1, 1, 0, 2.0, 2.0, 6.0, 7.8, 3.0, 3.0),
        (day + timedelta(days=1), 1, 0, 0, 0, 0, 0, 1, *[None] * 6),
    ]


def test_customers_are_scored_within_their_currency(spark: SparkSession) -> None:
    rows = [
        ("a", "c-1", MONDAY, 100, 40, True),
        ("b", "c-1", MONDAY + 9 * DAY, 50, 0, True),
        ("c", "c-2", MONDAY, 1_000, 0, True),
        ("d", "c-3", MONDAY, 1, 0, False),
        ("e", None, MONDAY + 10 * DAY, 1, 0, True),
    ]
    first, last = MONDAY.date(), (MONDAY + 9 * DAY).date()
    assert collected(customers(order_rows(spark, rows))) == [
        ("c-1", "GBP", first, last, 1, 2, 4, 150, 40, 110, 5, 5, 3),
        ("c-2", "GBP", first, first, 10, 1, 2, 1_000, 0, 1_000, 3, 3, 5),
    ]


def test_a_cohort_is_the_month_of_the_first_order(spark: SparkSession) -> None:
    rows = [
        ("a", "c-1", MONDAY, 100, 40, True),
        ("b", "c-1", MONDAY + DAY, 50, 0, True),
        ("c", "c-1", MONDAY + 31 * DAY, 10, 0, True),
        ("d", "c-2", MONDAY + 31 * DAY, 7, 0, True),
        ("e", None, MONDAY, 1, 0, True),
    ]
    march, april = date(2011, 3, 1), date(2011, 4, 1)
    assert collected(customer_cohorts(order_rows(spark, rows))) == [
        (march, 0, "GBP", 1, 2, 150, 40, 110),
        (march, 1, "GBP", 1, 1, 10, 0, 10),
        (april, 0, "GBP", 1, 1, 7, 0, 7),
    ]


def test_guests_stand_apart(spark: SparkSession) -> None:
    rows = [
        ("a", "c-1", MONDAY, 100, 0, True),
        ("b", None, MONDAY, 50, 0, True),
        ("c", None, MONDAY + DAY, 10, 3, True),
        ("d", None, MONDAY + DAY, 1, 0, False),
        ("e", None, MONDAY + 31 * DAY, 7, 0, True),
    ]
    assert collected(guests(order_rows(spark, rows))) == [
        (date(2011, 3, 1), "GBP", 2, 4, 60, 3, 57),
        (date(2011, 4, 1), "GBP", 1, 2, 7, 0, 7),
    ]
