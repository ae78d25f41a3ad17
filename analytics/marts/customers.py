"""Who buys: recency, frequency and money of each customer."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

FIFTHS = 5


def customers(orders: DataFrame) -> DataFrame:
    """One row per (customer, currency) that bought something: first_day, last_day, recency_days (to the last
    day on which anybody bought), orders, units, gross, refund, net (micros), and three scores from 1 to 5
    within the currency, 5 the best: recency, frequency, monetary. Equals score the same.

    Only orders that were sold; guests have a mart of their own.
    """
    sold = orders.where("sold")
    last = sold.agg(F.max(F.to_date("placed_at")).alias("latest"))
    own = sold.where("customer_id IS NOT NULL").groupBy("customer_id", "currency")
    totals = own.agg(
        F.min(F.to_date("placed_at")).alias("first_day"),
        F.max(F.to_date("placed_at")).alias("last_day"),
        F.count("*").alias("orders"),
        *(F.sum(name).alias(name) for name in ("units", "gross", "refund")),
    )
    measured = totals.crossJoin(F.broadcast(last)).select(
        *("customer_id", "currency", "first_day", "last_day"),
        F.date_diff("latest", "last_day").alias("recency_days"),
        *("orders", "units", "gross", "refund", F.expr("gross - refund").alias("net")),
    )
    return measured.select(
        "*",
        _fifth(F.desc("recency_days")).alias("recency"),
        _fifth(F.asc("orders")).alias("frequency"),
        _fifth(F.asc("net")).alias("monetary"),
    )


def _fifth(order: Column) -> Column:
    rank = F.cume_dist().over(Window.partitionBy("currency").orderBy(order))
    return F.ceil(rank * FIFTHS).cast("int")
