"""Stock: a ledger for each SKU, and what was not sold for want of stock."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

KINDS = ("received", "returned", "adjusted", "issued", "reserved", "released")
COLUMNS = ("received", "returned_units", *KINDS[2:])
"""What each kind of movement is called in the ledger: `returned` alone is a count of orders, in other marts."""


def stock_ledger(movements: DataFrame) -> DataFrame:
    """One row per (SKU, day with a movement), in units:
    opening + received + returned_units + adjusted - issued = closing, which is the opening of the SKU's next row.

    `reserved` and `released` do not change the closing stock; `held` is the units reserved at the day's end. Days are
    of business time: if a delivery is recorded for a later day than the sales from it, a day may close below zero."""
    by_kind = [
        F.sum(F.when(F.col("kind") == kind, F.col("quantity")).otherwise(0)).alias(name)
        for kind, name in zip(KINDS, COLUMNS, strict=True)
    ]
    return _closed(movements.groupBy("sku", F.to_date("occurred_at").alias("day")).agg(*by_kind))


def added_ledgers(ledger: DataFrame, new: DataFrame) -> DataFrame:
    """The ledger of all movements, from one of some and one of the others."""
    days = ledger.select("sku", "day", *COLUMNS).unionByName(new.select("sku", "day", *COLUMNS))
    return _closed(days.groupBy("sku", "day").agg(*(F.sum(name).alias(name) for name in COLUMNS)))


def added_states(states: DataFrame, new: DataFrame) -> DataFrame:
    """The same of `audit_stock`."""
    sums = (F.sum(name).alias(name) for name in ("on_hand", "reserved"))
    return states.unionByName(new).groupBy("entity").agg(*sums, F.max("version").alias("version"))


def _closed(days: DataFrame) -> DataFrame:
    so_far = Window.partitionBy("sku").orderBy("day").rowsBetween(Window.unboundedPreceding, 0)
    moved = F.expr("received + returned_units + adjusted - issued")
    closing = F.sum(moved).over(so_far)
    reserved_units = F.sum(F.expr("reserved - released - issued")).over(so_far)
    return days.select(
        *("sku", "day", (closing - moved).alias("opening"), *COLUMNS[:4], closing.alias("closing")),
        *("reserved", "released", reserved_units.alias("held")),
    )


def stockouts(rejected: DataFrame, lines: DataFrame, orders: DataFrame) -> DataFrame:
    """One row per (SKU, currency) that an order was rejected for: short (orders), units, lost and
    lost_with_orders (micros), first_day, last_day.

    `lost` is the value of the SKU's own lines, `lost_with_orders` the gross of the whole orders: one that was
    short of two SKUs counts for both. An order is rejected at the first SKU that is short; the log does not say whether
    others were short too."""
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
