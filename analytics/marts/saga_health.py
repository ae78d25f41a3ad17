"""How orders' conversations with stock end, how long they take, and how many retries they need."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

CONVERSATION = ("order_id", "step", "number")


def saga_health(conversation_events: DataFrame, outgoing_commands: DataFrame | None) -> DataFrame:
    """One row per (day of business time on which they began, step, outcome): conversations, skus asked for,
    turns (events that answered), retries, seconds_p50, seconds_p95, seconds_max of recorded time.

    Outcomes: of a reservation confirmed, rejected, cancelled, expired or open; of release, issue and return
    done, refused (all have an outcome, some are refusals) or open. `retries` counts the asks that were
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
