"""Orders: what became of each; sales by day; how far and how fast orders come; how conversations with stock end."""

from functools import partial, reduce

from pyspark.sql import Column, DataFrame
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
    confirmation; every other time is business time. An order whose placing is not in the frames is left out."""
    steps = {"confirmed": confirmed, "rejected": rejected, "cancelled": cancelled, "expired": expired}
    steps |= {"shipped": shipped, "returned": returned}
    happened = [frame.select(KEY, F.col("at").alias(f"{name}_at")) for name, frame in steps.items()]
    own = placed.withColumnRenamed("recorded_at", "placed_recorded_at")
    settled = confirmed.select(KEY, F.col("recorded_at").alias("confirmed_recorded_at"))
    back = returned.select(KEY, F.col("units").alias("returned_units"), "refund", "complete")
    stacked = partial(DataFrame.unionByName, allowMissingColumns=True)
    changes = reduce(stacked, [own, settled, back, *happened])
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


REVENUE_GRAIN = ("day", "country", "currency")


def daily_revenue(confirmed: DataFrame, cancelled: DataFrame, returned: DataFrame) -> DataFrame:
    """One row per (day, country, currency): gross, refund, net (micros), orders, units.

    An order counts on its own day when it is confirmed, and no longer when it is cancelled afterwards: nothing was
    delivered, so that day has sold less than it seemed.
    A return counts on the day it came back: it lowers the net and leaves orders and units as they are."""
    sold = _counted(confirmed, F.lit(1))
    undone = _counted(cancelled.where("confirmed"), F.lit(-1))
    back = returned.select(*REVENUE_GRAIN, *_amounts(F.lit(0), F.col("refund"), F.lit(0), F.lit(0)))
    return _net(sold.unionByName(undone).unionByName(back))


def added_revenue(revenue: DataFrame, new: DataFrame) -> DataFrame:
    """The revenue of all events, from that of some and that of the others."""
    return _net(revenue.unionByName(new))


def _net(amounts: DataFrame) -> DataFrame:
    summed = amounts.groupBy(*REVENUE_GRAIN)
    totals = summed.agg(*(F.sum(name).alias(name) for name in ("gross", "refund", "orders", "units")))
    return totals.select(
        *REVENUE_GRAIN, "gross", "refund", (F.col("gross") - F.col("refund")).alias("net"), "orders", "units"
    )


def _counted(orders: DataFrame, sign: Column) -> DataFrame:
    return orders.select(
        *REVENUE_GRAIN, *_amounts(sign * F.col("gross"), F.lit(0), sign, sign * F.col("units"))
    )


def _amounts(gross: Column, refund: Column, orders: Column, units: Column) -> list[Column]:
    named = {"gross": gross, "refund": refund, "orders": orders, "units": units}
    return [column.cast("long").alias(name) for name, column in named.items()]


STAGES = ("confirmed", "shipped", "returned")
ENDS = ("rejected", "cancelled", "expired")
HOUR, DAY = 3_600e6, 86_400e6


def order_funnel(orders: DataFrame) -> DataFrame:
    """One row per day on which orders were placed: placed, confirmed, shipped, returned (any part of it), and
    rejected, cancelled, expired; lead times as p50 and p95 of the orders that came that far.

    Confirming is in seconds of recorded time; shipping (from placing) in hours, returning (from shipping, to
    the first return) in days of business time. Null where no order of the day came that far."""
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


CONVERSATION = ("order_id", "step", "number")


def saga_health(conversation_events: DataFrame, outgoing_commands: DataFrame | None) -> DataFrame:
    """One row per (day of business time on which they began, step, outcome): conversations, skus (in outgoing
    commands), turns (events with outcomes), retries, seconds_p50, seconds_p95, seconds_max of recorded time.

    Outcomes: of a reservation confirmed, rejected, cancelled, expired or open; of release, issue and return
    done, refused (all have an outcome, some are refusals) or open. `retries` counts the commands that were
    written again; null where `outgoing_commands` is None. Commands are kept for days only: older retries are not seen.
    """
    asking = F.col("asked") > 0
    ended = F.when(F.col("open"), F.lit(None)).otherwise(F.col("last"))
    folded = conversation_events.groupBy(*CONVERSATION).agg(
        F.sum("asked").alias("asked"),
        F.sum("answered").alias("answered"),
        F.sum("refused").alias("refused"),
        F.count_if(~asking).alias("turns"),
        F.max("ends_as").alias("ends_as"),
        F.min(F.when(asking, F.col("id"))).alias("id"),
        F.min(F.when(asking, F.to_date("at"))).alias("day"),
        F.min(F.when(asking, F.col("recorded_at"))).alias("first"),
        F.max("recorded_at").alias("last"),
    )
    movement = F.when(F.col("answered") < F.col("asked"), "open").when(F.col("refused") > 0, "refused")
    outcome = F.when(F.col("step") == "reserve", F.coalesce("ends_as", F.lit("open"))).otherwise(
        movement.otherwise("done")
    )
    dated = folded.where("day IS NOT NULL").withColumn("outcome", outcome)
    timed = dated.withColumn("open", F.col("outcome") == "open").withColumn(
        "seconds", (F.unix_micros(ended) - F.unix_micros("first")) / 1e6
    )
    return (
        _with_retries(timed, outgoing_commands)
        .groupBy("day", "step", "outcome")
        .agg(
            F.count("*").alias("conversations"),
            F.sum("asked").alias("skus"),
            F.sum("turns").alias("turns"),
            F.sum("retries").alias("retries"),
            F.percentile("seconds", 0.5).alias("seconds_p50"),
            F.percentile("seconds", 0.95).alias("seconds_p95"),
            F.max("seconds").alias("seconds_max"),
        )
    )


def _with_retries(conversations: DataFrame, outgoing_commands: DataFrame | None) -> DataFrame:
    if outgoing_commands is None:
        return conversations.withColumn("retries", F.lit(None).cast("long"))
    retries_by_cause = (
        outgoing_commands.where("sent > 1")
        .groupBy(F.col("cause").alias("id"))
        .agg(F.sum(F.expr("sent - 1")).alias("again"))
    )
    return conversations.join(retries_by_cause, "id", "left").withColumn(
        "retries", F.coalesce("again", F.lit(0))
    )
