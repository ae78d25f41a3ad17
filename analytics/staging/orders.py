"""The order events that carry money, with the names the marts use. Days are UTC, money is micros."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.replay import Replay


def confirmed(log: Replay) -> DataFrame:
    """One row per confirmed order: order_id, day, country, currency, units, gross."""
    return log.of("daybook.order.OrderConfirmed").select(
        "order_id", F.to_date("occurred_at").alias("day"), "country", "currency", "units", "gross"
    )


def cancelled(log: Replay) -> DataFrame:
    """One row per cancelled order; `day` is when it was placed, `confirmed` whether it had been confirmed."""
    return log.of("daybook.order.OrderCancelled").select(
        "order_id", F.to_date("placed_at").alias("day"), "country", "currency", "units", "gross", "confirmed"
    )


def returned(log: Replay) -> DataFrame:
    """One row per return: order_id, return_number, day, country, currency, units, refund."""
    return log.of("daybook.order.OrderReturned").select(
        "order_id",
        "return_number",
        F.to_date("occurred_at").alias("day"),
        *("country", "currency", "units", "refund"),
    )
