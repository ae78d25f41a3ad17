"""Which articles are bought together."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MOST_SKUS = 100
LEAST_SUPPORT = 0.005
LEAST_BASKETS = 2


def basket_pairs(orders: DataFrame, lines: DataFrame) -> DataFrame:
    """One row per pair (sku_a < sku_b): baskets, baskets_a, baskets_b, baskets_both, support,
    confidence_ab (of those with a, how many have b too), confidence_ba, lift.

    A basket is the distinct SKUs of a sold order. So that the pairs stay countable: baskets of more than
    MOST_SKUS are left out (pairs grow with the square; such orders are a dealer's stock, not a taste), and so
    are pairs in less than LEAST_SUPPORT of the baskets, or in less than LEAST_BASKETS.
    """
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
