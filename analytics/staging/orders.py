"""The order events, with the names the marts use. Days are UTC and of business time, money is micros."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.events import Events


def placed(log: Events) -> DataFrame:
    """One row per placed order: order_id, customer_id (null: a guest), country, currency, units, gross,
    placed_at, recorded_at."""
    return log.of("daybook.order.OrderPlaced").select(
        *("order_id", "customer_id", "country", "currency"),
        F.expr("aggregate(lines, 0L, (sum, line) -> sum + line.quantity)").alias("units"),
        *("gross", F.col("occurred_at").alias("placed_at"), "recorded_at"),
    )


def lines(log: Events) -> DataFrame:
    """One row per order line, as the customer wrote it: order_id, sku, quantity, value."""
    exploded = log.of("daybook.order.OrderPlaced").select("order_id", F.explode("lines").alias("line"))
    value = F.col("line.quantity").cast("long") * F.col("line.unit_price")
    return exploded.select("order_id", "line.sku", "line.quantity", value.alias("value"))


def confirmed(log: Events) -> DataFrame:
    """One row per confirmed order: order_id, day, country, currency, units, gross, at, recorded_at."""
    return log.of("daybook.order.OrderConfirmed").select(
        "order_id",
        F.to_date("occurred_at").alias("day"),
        *("country", "currency", "units", "gross"),
        *(F.col("occurred_at").alias("at"), "recorded_at"),
    )


def rejected(log: Events) -> DataFrame:
    """One row per rejected order: order_id, at, short (the SKUs that were)."""
    return log.of("daybook.order.OrderRejected").select("order_id", F.col("occurred_at").alias("at"), "short")


def cancelled(log: Events) -> DataFrame:
    """One row per cancelled order; `day` is when it was placed, `confirmed` whether it had been confirmed."""
    return log.of("daybook.order.OrderCancelled").select(
        "order_id",
        F.to_date("placed_at").alias("day"),
        *("country", "currency", "units", "gross", "confirmed"),
        F.col("occurred_at").alias("at"),
    )


def expired(log: Events) -> DataFrame:
    """One row per order that was given up: order_id, at."""
    return log.of("daybook.order.OrderExpired").select("order_id", F.col("occurred_at").alias("at"))


def shipped(log: Events) -> DataFrame:
    """One row per shipped order: order_id, at."""
    return log.of("daybook.order.OrderShipped").select("order_id", F.col("occurred_at").alias("at"))


def returned(log: Events) -> DataFrame:
    """One row per return: order_id, return_number, day, country, currency, units, refund, complete, at."""
    return log.of("daybook.order.OrderReturned").select(
        "order_id",
        "return_number",
        F.to_date("occurred_at").alias("day"),
        *("country", "currency", "units", "refund", "complete"),
        F.col("occurred_at").alias("at"),
    )


def refunded_lines(log: Events) -> DataFrame:
    """One row per return and SKU: order_id, sku, quantity, refund."""
    exploded = log.of("daybook.order.OrderReturned").select("order_id", F.explode("lines").alias("line"))
    return exploded.select("order_id", "line.sku", "line.quantity", "line.refund")
