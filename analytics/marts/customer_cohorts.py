"""Do customers come back? By the month of their first order."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def customer_cohorts(orders: DataFrame) -> DataFrame:
    """One row per (cohort, months_later, currency): customers and orders of that month, gross, refund, net
    (micros); `cohort` is the first day of the month of the customer's first order, months_later 0 that month.

    Only orders that were sold, without guests. A refund counts in the month of its order.
    """
    month = F.trunc(F.to_date("placed_at"), "month")
    sold = orders.where("sold AND customer_id IS NOT NULL").withColumn("month", month)
    cohort = F.min("month").over(Window.partitionBy("customer_id"))
    months = sold.withColumn("cohort", cohort).groupBy(
        "cohort", F.months_between("month", "cohort").cast("int").alias("months_later"), "currency"
    )
    return months.agg(
        F.count_distinct("customer_id").alias("customers"),
        F.count("*").alias("orders"),
        *(F.sum(name).alias(name) for name in ("gross", "refund")),
        F.sum(F.expr("gross - refund")).alias("net"),
    )
