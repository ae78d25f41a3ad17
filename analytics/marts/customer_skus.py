"""Who buys what: the compound key of customer and article."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def customer_skus(orders: DataFrame, lines: DataFrame, refunded: DataFrame) -> DataFrame:
    """One row per (customer, SKU, currency): orders, units, spent, returned_units, refund (micros), last_day.

    Only orders that were sold, without guests and without charges. Customers are spread over all partitions
    of the log, which is keyed by order: the two are joined here by the order's id.
    """
    sold = orders.where("sold AND customer_id IS NOT NULL").select(
        "order_id", "customer_id", "currency", F.to_date("placed_at").alias("day")
    )
    bought = lines.groupBy("order_id", "sku").agg(
        F.sum("quantity").alias("units"), F.sum("value").alias("spent")
    )
    back = refunded.groupBy("order_id", "sku").agg(
        F.sum("quantity").alias("returned_units"), F.sum("refund").alias("refund")
    )
    joined = sold.join(bought, "order_id").join(back, ["order_id", "sku"], "left")
    added = ("units", "spent", "returned_units", "refund")
    return joined.groupBy("customer_id", "sku", "currency").agg(
        F.count("*").alias("orders"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in added),
        F.max("day").alias("last_day"),
    )
