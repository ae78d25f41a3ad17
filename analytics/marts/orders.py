"""Every order with all that became of it; most other marts are counted from this one."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

KEY = "order_id"


def orders(
    placed: DataFrame,
    confirmed: DataFrame,
    rejected: DataFrame,
    cancelled: DataFrame,
    expired: DataFrame,
    shipped: DataFrame,
    returned: DataFrame,
) -> DataFrame:
    """One row per order: who, where, units and gross (micros), when it came to what, what came back.

    `sold`: confirmed and not cancelled. `confirming_seconds` is recorded time, from its placing to its
    confirmation; every other time is business time. An order whose placing is not in the frames is left out.
    """
    steps = {"confirmed": confirmed, "rejected": rejected, "cancelled": cancelled, "expired": expired}
    steps |= {"shipped": shipped, "returned": returned}
    happened = [frame.select(KEY, F.col("at").alias(f"{name}_at")) for name, frame in steps.items()]
    own = placed.withColumnRenamed("recorded_at", "placed_recorded_at")
    settled = confirmed.select(KEY, F.col("recorded_at").alias("confirmed_recorded_at"))
    back = returned.select(KEY, F.col("units").alias("returned_units"), "refund", "complete")
    changes = reduce(_stacked, [own, settled, back, *happened])
    added = {name: F.sum(name) for name in ("returned_units", "refund")}
    first = {name: F.min(name) for name in changes.columns if name not in (KEY, *added)}
    first["complete"] = F.max("complete")
    folded = changes.groupBy(KEY).agg(*(column.alias(name) for name, column in (first | added).items()))
    seconds = (F.unix_micros("confirmed_recorded_at") - F.unix_micros("placed_recorded_at")) / 1e6
    return folded.where("placed_at IS NOT NULL").select(
        *(KEY, "customer_id", "country", "currency", "units", "gross"),
        F.coalesce("returned_units", F.lit(0)).cast("long").alias("returned_units"),
        F.coalesce("refund", F.lit(0)).cast("long").alias("refund"),
        F.expr("confirmed_at IS NOT NULL AND cancelled_at IS NULL").alias("sold"),
        F.coalesce("complete", F.lit(False)).alias("returned_whole"),
        "placed_at",
        *(f"{name}_at" for name in steps),
        seconds.alias("confirming_seconds"),
    )


def _stacked(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.unionByName(right, allowMissingColumns=True)
