"""What was sold and what came back, by day."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

GRAIN = ("day", "country", "currency")


def daily_revenue(confirmed: DataFrame, cancelled: DataFrame, returned: DataFrame) -> DataFrame:
    """One row per (day, country, currency): gross, returned, net (micros), orders, units.

    An order counts on its own day when it is confirmed, and no longer when it is cancelled afterwards.
    A return counts on the day it came back: it lowers the net and leaves orders and units as they are.
    """
    sold = _counted(confirmed, F.lit(1))
    undone = _counted(cancelled.where("confirmed"), F.lit(-1))
    back = returned.select(*GRAIN, *_amounts(F.lit(0), F.col("refund"), F.lit(0), F.lit(0)))
    summed = sold.unionByName(undone).unionByName(back).groupBy(*GRAIN)
    totals = summed.agg(*(F.sum(name).alias(name) for name in ("gross", "returned", "orders", "units")))
    return totals.select(
        *GRAIN, "gross", "returned", (F.col("gross") - F.col("returned")).alias("net"), "orders", "units"
    )


def _counted(orders: DataFrame, sign: Column) -> DataFrame:
    return orders.select(*GRAIN, *_amounts(sign * F.col("gross"), F.lit(0), sign, sign * F.col("units")))


def _amounts(gross: Column, returned: Column, orders: Column, units: Column) -> list[Column]:
    named = {"gross": gross, "returned": returned, "orders": orders, "units": units}
    return [column.cast("long").alias(name) for name, column in named.items()]
