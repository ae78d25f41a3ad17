"""How far the orders of a day came, and how long it took them."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

STAGES = ("confirmed", "shipped", "returned")
ENDS = ("rejected", "cancelled", "expired")
HOUR, DAY = 3_600e6, 86_400e6


def order_funnel(orders: DataFrame) -> DataFrame:
    """One row per day on which orders were placed: placed, confirmed, shipped, returned (any part of it), and
    rejected, cancelled, expired; lead times as p50 and p95 of the orders that came that far.

    Confirming is in seconds of recorded time; shipping (from placing) in hours, returning (from shipping, to
    the first return) in days of business time. Null where no order of the day came that far.
    """
    counted = orders.withColumn("day", F.to_date("placed_at")).groupBy("day")
    leads = {
        "confirming_seconds": F.col("confirming_seconds"),
        "shipping_hours": _between("placed_at", "shipped_at") / HOUR,
        "returning_days": _between("shipped_at", "returned_at") / DAY,
    }
    percentiles = {
        name: F.percentile(column, F.array(F.lit(0.5), F.lit(0.95))) for name, column in leads.items()
    }
    folded = counted.agg(
        F.count("*").alias("placed"),
        *(F.count(f"{stage}_at").alias(stage) for stage in (*STAGES, *ENDS)),
        *(column.alias(name) for name, column in percentiles.items()),
    )
    spread = [
        F.col(name)[index].alias(f"{name}_{p}") for name in leads for index, p in enumerate(("p50", "p95"))
    ]
    return folded.select("day", "placed", *STAGES, *ENDS, *spread)


def _between(start: str, end: str) -> Column:
    """Micros."""
    return F.unix_micros(end) - F.unix_micros(start)
