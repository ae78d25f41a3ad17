"""Each SKU's stock as a bookkeeper writes it, day after day."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

KINDS = ("received", "returned", "adjusted", "issued", "reserved", "released")


def stock_ledger(movements: DataFrame) -> DataFrame:
    """One row per (SKU, day with a movement), in units:
    opening + received + returned + adjusted - issued = closing, which is the opening of the SKU's next row.

    `reserved` and `released` move nothing out of the house; `reserved_units` is what is reserved at the day's end. Days
    are of business time: where a delivery was entered for a later day than what it served, a day may close
    below zero.
    """
    by_kind = [
        F.sum(F.when(F.col("kind") == kind, F.col("quantity")).otherwise(0)).alias(kind) for kind in KINDS
    ]
    days = movements.groupBy("sku", F.to_date("occurred_at").alias("day")).agg(*by_kind)
    so_far = Window.partitionBy("sku").orderBy("day").rowsBetween(Window.unboundedPreceding, 0)
    moved = F.expr("received + returned + adjusted - issued")
    closing = F.sum(moved).over(so_far)
    reserved_units = F.sum(F.expr("reserved - released - issued")).over(so_far)
    return days.select(
        *("sku", "day", (closing - moved).alias("opening"), *KINDS[:4], closing.alias("closing")),
        *("reserved", "released", reserved_units.alias("held")),
    )
