"""Orders' conversations with stock: which commands each event sends, which outcomes it records."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.events import Events

CONVERSATION_EVENT = (
    "order_id",
    "step",
    "number",
    "asked",
    "answered",
    "refused",
    "ends_as",
    "id",
    "at",
    "recorded_at",
)


def conversation_events(log: Events) -> DataFrame:
    """One row per event and conversation that it belongs to: the columns of TURN.

    A conversation is (order_id, step, number): step is reserve, release, issue or return, number that of the
    return, else 0. `asked`, `answered` and `refused` are counts of SKUs. `ends_as` is set where the event
    ends a reservation, whatever is still pending. `at` is business time.
    """
    skus = F.expr("size(array_distinct(lines.sku))")
    outgoing_commands = [
        _event(log, "OrderPlaced", "reserve", asked=skus),
        _event(log, "OrderShipped", "issue", asked=F.size("issue")),
        _event(log, "OrderReturned", "return", number=F.col("return_number"), asked=F.size("lines")),
        *(
            _event(log, name, "release", asked=F.size("release"))
            for name in ("OrderRejected", "OrderCancelled", "OrderExpired")
        ),
    ]
    short = F.size("short")
    before_it_was_settled = F.when(~F.col("confirmed"), "cancelled")
    replies = [
        _event(log, "ReservationsRecorded", "reserve", answered=F.size("reserved")),
        _event(log, "OrderConfirmed", "reserve", answered=F.size("reserved"), ends_as=F.lit("confirmed")),
        _event(log, "OrderRejected", "reserve", answered=short, refused=short, ends_as=F.lit("rejected")),
        _event(log, "OrderCancelled", "reserve", ends_as=before_it_was_settled).where("ends_as IS NOT NULL"),
        _event(log, "OrderExpired", "reserve", ends_as=F.lit("expired")),
        _movements(log),
    ]
    return reduce(
        DataFrame.unionByName, [event_frame.where("asked > 0") for event_frame in outgoing_commands] + replies
    )


def outgoing_commands(commands: DataFrame) -> DataFrame:
    """One row per ask in the topics of inventory's commands: id, cause (the event that first asked), sent.

    `sent` counts how often it was written: an ask that stayed unanswered is asked again under the same id.
    `commands` are those topics' records `with_columns`.
    """
    earliest = F.min_by("causation_id", F.struct("recorded_at", "offset"))
    return commands.groupBy("id").agg(earliest.alias("cause"), F.count("*").alias("sent"))


def _event(
    log: Events,
    name: str,
    step: str,
    *,
    number: Column | None = None,
    asked: Column | None = None,
    answered: Column | None = None,
    refused: Column | None = None,
    ends_as: Column | None = None,
) -> DataFrame:
    counted = {"number": number, "asked": asked, "answered": answered, "refused": refused}
    return log.of(f"daybook.order.{name}").select(
        "order_id",
        F.lit(step).alias("step"),
        *(
            (F.lit(0) if column is None else column).cast("int").alias(name)
            for name, column in counted.items()
        ),
        (F.lit(None) if ends_as is None else ends_as).cast("string").alias("ends_as"),
        *("id", F.col("occurred_at").alias("at"), "recorded_at"),
    )


def _movements(log: Events) -> DataFrame:
    """One event may record outcomes of several conversations."""
    events = log.of("daybook.order.MovementsRecorded")
    replies = events.select(
        "order_id", "id", F.col("occurred_at").alias("at"), "recorded_at", F.explode("movements").alias("one")
    )
    grouped = replies.groupBy(
        *("order_id", "id", "at", "recorded_at"),
        F.col("one.step").alias("step"),
        F.col("one.return_number").alias("number"),
    )
    counted = grouped.agg(
        F.count("*").cast("int").alias("answered"),
        F.count_if(~F.col("one.accepted")).cast("int").alias("refused"),
    )
    return counted.select(
        *("order_id", "step", "number", F.lit(0).alias("asked"), "answered", "refused"),
        F.lit(None).cast("string").alias("ends_as"),
        *("id", "at", "recorded_at"),
    )
