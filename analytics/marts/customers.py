"""Customers: who buys what, how often and how much, whether they come back; and what is bought together."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

FIFTHS = 5


def customers(orders: DataFrame) -> DataFrame:
    """One row per (customer, currency) that bought something: first_day, last_day, recency_days (to the last
    day on which anybody bought), orders, units, gross, refund, net (micros), and three scores from 1 to 5
    within the currency, 5 the best: recency, frequency, monetary. Equal values have the same score.

    Only orders that were sold; guests have a mart of their own."""
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


def customer_cohorts(orders: DataFrame) -> DataFrame:
    """One row per (cohort, months_later, currency): customers and orders of that month, gross, refund, net
    (micros); `cohort` is the first day of the month of the customer's first order, months_later 0 that month.

    Only orders that were sold, without guests. A refund counts in the month of its order."""
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


def customer_skus(orders: DataFrame, lines: DataFrame, refunded_lines: DataFrame) -> DataFrame:
    """One row per (customer, SKU, currency): orders, units, spent, returned_units, refund (micros), last_day.

    Only orders that were sold, without guests and without charges. Customers are spread over all partitions
    of the log, which is keyed by order: the two are joined here by the order's id."""
    sold = orders.where("sold AND customer_id IS NOT NULL").select(
        "order_id", "customer_id", "currency", F.to_date("placed_at").alias("day")
    )
    bought = lines.groupBy("order_id", "sku").agg(
        F.sum("quantity").alias("units"), F.sum("value").alias("spent")
    )
    back = refunded_lines.groupBy("order_id", "sku").agg(
        F.sum("quantity").alias("returned_units"), F.sum("refund").alias("refund")
    )
    joined = sold.join(bought, "order_id").join(back, ["order_id", "sku"], "left")
    added = ("units", "spent", "returned_units", "refund")
    return joined.groupBy("customer_id", "sku", "currency").agg(
        F.count("*").alias("orders"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in added),
        F.max("day").alias("last_day"),
    )


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


MOST_SKUS = 100
LEAST_SUPPORT = 0.005
LEAST_BASKETS = 2


def basket_pairs(orders: DataFrame, lines: DataFrame) -> DataFrame:
    """One row per pair (sku_a < sku_b): baskets, baskets_a, baskets_b, baskets_both, support,
    confidence_ab (of those with a, how many have b too), confidence_ba, lift.

    A basket is the distinct SKUs of a sold order. To limit the number of pairs, it leaves out baskets of more than
    MOST_SKUS (pairs grow with the square; such orders are a dealer's stock), and pairs in less than LEAST_SUPPORT of
    the baskets or in less than LEAST_BASKETS."""
    sold = orders.where("sold").select("order_id")
    filled = (
        lines.join(sold, "order_id", "left_semi").groupBy("order_id").agg(F.collect_set("sku").alias("skus"))
    )
    baskets = filled.where(F.size("skus") <= MOST_SKUS)
    total = F.broadcast(baskets.agg(F.count("*").alias("baskets")))
    often = F.expr(f"count >= greatest({LEAST_BASKETS}, {LEAST_SUPPORT} * baskets)")
    basket_skus = baskets.select("order_id", F.explode("skus").alias("sku"))
    # No pair is more frequent than the rarer of its two.
    single = basket_skus.groupBy("sku").agg(F.count("*").alias("count")).crossJoin(total).where(often)
    kept = (
        basket_skus.join(single, "sku", "left_semi")
        .groupBy("order_id")
        .agg(F.sort_array(F.collect_list("sku")).alias("skus"))
    )
    positioned = kept.select("skus", F.posexplode("skus").alias("place", "sku_a"))
    both = positioned.select("sku_a", F.explode(F.expr("slice(skus, place + 2, size(skus))")).alias("sku_b"))
    counted = both.groupBy("sku_a", "sku_b").agg(F.count("*").alias("count")).crossJoin(total).where(often)
    a, b = (single.select(F.col("sku").alias(f"sku_{s}"), F.col("count").alias(f"baskets_{s}")) for s in "ab")
    pairs = counted.withColumnRenamed("count", "baskets_both").join(a, "sku_a").join(b, "sku_b")
    return pairs.select(
        *("sku_a", "sku_b", "baskets", "baskets_a", "baskets_b", "baskets_both"),
        F.expr("baskets_both / baskets").alias("support"),
        F.expr("baskets_both / baskets_a").alias("confidence_ab"),
        F.expr("baskets_both / baskets_b").alias("confidence_ba"),
        F.expr("(baskets_both * baskets) / (baskets_a * baskets_b)").alias("lift"),
    )
