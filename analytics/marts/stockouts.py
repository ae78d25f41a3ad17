"""What could not be sold for want of stock."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def stockouts(rejected: DataFrame, lines: DataFrame, orders: DataFrame) -> DataFrame:
    """One row per (SKU, currency) that an order was rejected for: short (orders), units, lost and
    lost_with_orders (micros), first_day, last_day.

    `lost` is the value of the SKU's own lines, `lost_with_orders` the gross of the whole orders: one that was
    short of two SKUs counts at both. An order is rejected at the first SKU that is short; of the others
    nothing is known.
    """
    short = rejected.select("order_id", F.explode("short").alias("sku")).distinct()
    ordered = lines.groupBy("order_id", "sku").agg(
        F.sum("quantity").alias("units"), F.sum("value").alias("lost")
    )
    own = orders.select("order_id", "currency", "gross", F.to_date("placed_at").alias("day"))
    missed = short.join(ordered, ["order_id", "sku"]).join(own, "order_id")
    return missed.groupBy("sku", "currency").agg(
        F.count("*").alias("short"),
        F.sum("units").alias("units"),
        F.sum("lost").alias("lost"),
        F.sum("gross").alias("lost_with_orders"),
        F.min("day").alias("first_day"),
        F.max("day").alias("last_day"),
    )
