"""The log folded by Spark SQL alone: no Python, no domain, another Avro reader."""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from analytics import staging
from analytics.events import Events

ORDER_FIELDS = ("status", "version", "gross", "refund", "units")
STOCK_FIELDS = ("on_hand", "reserved", "version")
STATUSES: Mapping[str, str | None] = {
    "OrderPlaced": "'placed'",
    "ReservationsRecorded": None,
    "OrderConfirmed": "'confirmed'",
    "OrderRejected": "'rejected'",
    "OrderCancelled": "'cancelled'",
    "OrderExpired": "'expired'",
    "OrderShipped": "'shipped'",
    "OrderReturned": "if(complete, 'returned', 'partly_returned')",
    "MovementsRecorded": None,
}


def orders(log: Events, every_version: bool = False) -> DataFrame:
    """One row per order: entity and ORDER_FIELDS; with `every_version`, one row per event instead."""
    changes = reduce(DataFrame.unionByName, (_order_changes(log, name) for name in STATUSES))
    aggregates = {
        "status": F.max_by("status", F.when(F.col("status").isNotNull(), F.col("offset"))),
        "version": F.max("version"),
        "gross": F.sum("gross"),
        "refund": F.sum("refund"),
        "units": F.sum("units"),
    }
    return _folded(changes, aggregates, every_version)


def stocks(log: Events, every_version: bool = False) -> DataFrame:
    """One row per SKU: entity and STOCK_FIELDS; with `every_version`, one row per event instead."""
    effects_by_kind = {"received": (1, 0), "adjusted": (1, 0), "returned": (1, 0)}
    effects_by_kind |= {"reserved": (0, 1), "released": (0, -1), "issued": (-1, -1)}
    effects = {
        name: reduce(
            lambda chain, kind: chain.when(F.col("kind") == kind, F.lit(effects_by_kind[kind][index])),
            effects_by_kind,
            F.when(F.lit(False), F.lit(0)),
        )
        for index, name in enumerate(("on_hand", "reserved"))
    }
    aggregates = {name: F.sum(effect * F.col("quantity")) for name, effect in effects.items()}
    aggregates["version"] = F.max("version")
    return _folded(staging.movements(log).withColumnRenamed("sku", "entity"), aggregates, every_version)


def _order_changes(log: Events, name: str) -> DataFrame:
    """What one event changes: its status, if it sets one, and what it adds to gross, refund and units."""
    placed, returned = name == "OrderPlaced", name == "OrderReturned"
    units = "aggregate(lines, 0L, (sum, line) -> sum + line.quantity)"
    return log.of(f"daybook.order.{name}").select(
        *("entity", "partition", "offset", "version"),
        F.expr(STATUSES[name] or "CAST(NULL AS string)").alias("status"),
        F.expr("gross" if placed else "0L").alias("gross"),
        F.expr("refund" if returned else "0L").alias("refund"),
        F.expr(units if placed else "0L").alias("units"),
    )


def _folded(changes: DataFrame, aggregates: Mapping[str, Column], every_version: bool) -> DataFrame:
    if not every_version:
        return changes.groupBy("entity").agg(*(column.alias(name) for name, column in aggregates.items()))
    stream = Window.partitionBy("entity").orderBy("partition", "offset")
    so_far = stream.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    running = (column.over(so_far).alias(name) for name, column in aggregates.items())
    return changes.select("entity", *running)
