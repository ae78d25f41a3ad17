"""Joins orders with reservations while they happen: lines ordered and reserved, hour by hour, each line once.

Structured streaming keeps two states, the lines that wait for their reservation and the hours that are still open,
with one watermark in recorded time. Output and position are committed together, so a run that is killed and started
again neither loses nor repeats a line.

What a run has passed stays as it is: it does not count the events of a key that stopped, even if an operator decides
later that they count. Remove the folders then, to begin again."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.envelope import EVENT_TOPICS, with_columns
from analytics.log_rule import with_fault
from analytics.replay import SOURCE, Replay, replay
from services.kernel.log.clients import Connection

LATE = "10 minutes"
"""How late a record may come, and how long a line may wait for its reservation."""
WINDOW = "1 hour"


def live(session: SparkSession, kafka: str, topics: tuple[str, ...] = EVENT_TOPICS) -> Replay:
    """Returns the committed log from its beginning as a stream, with the same frames as a replay. Which records count
    is found once, in the log as it is now: call it for each run."""
    current = replay(session, kafka, topics)
    source = (
        session.readStream.format("kafka")
        .options(**SOURCE)
        .options(**Connection(kafka).java("kafka."))
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .load()
    )
    return Replay({}, with_fault(with_columns(source), current.exceptions), current.lock, current.exceptions)


def held_by_hour(log: Replay) -> DataFrame:
    """One row per hour (of recorded time, when the order was placed): hour, lines (SKUs of orders), units,
    lines_held, units_held. A line counts as held if its reservation came within LATE."""
    lines = log.of("daybook.order.OrderPlaced").select(
        "order_id", F.col("recorded_at").alias("asked_at"), F.explode("lines").alias("line")
    )
    ordered = lines.select("order_id", F.col("line.sku").alias("sku"), "asked_at", "line.quantity")
    reserved = log.of("daybook.inventory.StockReserved").select(
        F.col("order_id").alias("held_order"),
        F.col("sku").alias("held_sku"),
        F.col("recorded_at").alias("held_at"),
        F.col("quantity").alias("held_units"),
    )
    in_time = f"held_at BETWEEN asked_at AND asked_at + INTERVAL {LATE}"
    both = F.expr(f"order_id = held_order AND sku = held_sku AND {in_time}")
    reserved = reserved.withWatermark("held_at", LATE)
    together = ordered.withWatermark("asked_at", LATE).join(reserved, both, "left_outer")
    hours = together.groupBy(F.window("asked_at", WINDOW).alias("window"))
    counted = hours.agg(
        F.count("*").alias("lines"),
        F.sum("quantity").alias("units"),
        F.count("held_at").alias("lines_held"),
        F.sum(F.when(F.col("held_at").isNotNull(), F.col("quantity")).otherwise(0)).alias("units_held"),
    )
    return counted.select(F.col("window.start").alias("hour"), "lines", "units", "lines_held", "units_held")


def append_new(hours: DataFrame, folder: Path) -> None:
    """Reads the records since the last run and appends the hours that they close to the Parquet files in `rows`.
    `checkpoint` beside it says how far it has read, and what is open."""
    query = (
        hours.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
