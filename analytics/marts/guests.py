"""Those who buy without a name: nobody knows which of them came back."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def guests(orders: DataFrame) -> DataFrame:
    """One row per (month, currency) in which guests bought: orders, units, gross, refund, net (micros). `month` is
    its first day. Only orders that were sold. A refund counts in the month of its order."""
    sold = orders.where("sold AND customer_id IS NULL")
    months = sold.groupBy(F.trunc(F.to_date("placed_at"), "month").alias("month"), "currency")
    return months.agg(
        F.count("*").alias("orders"),
        *(F.sum(name).alias(name) for name in ("units", "gross", "refund")),
        F.sum(F.expr("gross - refund")).alias("net"),
    )
