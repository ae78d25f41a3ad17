"""The events with the names and types that marts use, and no business.

Days are UTC and of business time, money is micros, quantities are units."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from analytics.events import Events
from contracts.kernel.records import InboxBatch
from contracts.lock import Lock


def placed(log: Events) -> DataFrame:
    """One row per placed order: order_id, customer_id (null: a guest), country, currency, units, gross,
    placed_at, recorded_at."""
    return log.of("daybook.order.OrderPlaced").select(
        *("order_id", "customer_id", "country", "currency"),
        F.expr("aggregate(lines, 0L, (sum, line) -> sum + line.quantity)").alias("units"),
        *("gross", F.col("occurred_at").alias("placed_at"), "recorded_at"),
    )


def lines(log: Events) -> DataFrame:
    """One row per order line as ordered: order_id, sku, quantity, value."""
    exploded = log.of("daybook.order.OrderPlaced").select("order_id", F.explode("lines").alias("line"))
    value = F.col("line.quantity").cast("long") * F.col("line.unit_price")
    return exploded.select("order_id", "line.sku", "line.quantity", value.alias("value"))


def confirmed(log: Events) -> DataFrame:
    """One row per confirmed order: order_id, day, country, currency, units, gross, at, recorded_at."""
    return log.of("daybook.order.OrderConfirmed").select(
        "order_id",
        F.to_date("occurred_at").alias("day"),
        *("country", "currency", "units", "gross"),
        *(F.col("occurred_at").alias("at"), "recorded_at"),
    )


def rejected(log: Events) -> DataFrame:
    """One row per rejected order: order_id, at, short (the SKUs that were short)."""
    return log.of("daybook.order.OrderRejected").select("order_id", F.col("occurred_at").alias("at"), "short")


def cancelled(log: Events) -> DataFrame:
    """One row per cancelled order; `day` is when it was placed, `confirmed` whether it had been confirmed."""
    return log.of("daybook.order.OrderCancelled").select(
        "order_id",
        F.to_date("placed_at").alias("day"),
        *("country", "currency", "units", "gross", "confirmed"),
        F.col("occurred_at").alias("at"),
    )


def expired(log: Events) -> DataFrame:
    """One row per expired order: order_id, at."""
    return log.of("daybook.order.OrderExpired").select("order_id", F.col("occurred_at").alias("at"))


def shipped(log: Events) -> DataFrame:
    """One row per shipped order: order_id, at."""
    return log.of("daybook.order.OrderShipped").select("order_id", F.col("occurred_at").alias("at"))


def returned(log: Events) -> DataFrame:
    """One row per return: order_id, return_number, day, country, currency, units, refund, complete, at."""
    return log.of("daybook.order.OrderReturned").select(
        "order_id",
        "return_number",
        F.to_date("occurred_at").alias("day"),
        *("country", "currency", "units", "refund", "complete"),
        F.col("occurred_at").alias("at"),
    )


def refunded_lines(log: Events) -> DataFrame:
    """One row per return and SKU: order_id, sku, quantity, refund."""
    exploded = log.of("daybook.order.OrderReturned").select("order_id", F.explode("lines").alias("line"))
    return exploded.select("order_id", "line.sku", "line.quantity", "line.refund")


KINDS = ("Received", "Adjusted", "Reserved", "Released", "Issued", "Returned")


def movements(log: Events) -> DataFrame:
    """One row per stock event: topic, partition, offset, sku, version, kind, quantity, occurred_at."""
    frames = [
        log.of(f"daybook.inventory.Stock{kind}").select(
            *("topic", "partition", "offset", "sku", "version"),
            F.lit(kind.lower()).alias("kind"),
            *("quantity", "occurred_at"),
        )
        for kind in KINDS
    ]
    return reduce(DataFrame.unionByName, frames)


def conversation_events(log: Events) -> DataFrame:
    """One row per event and conversation that it belongs to: order_id, step, number, asked, answered, refused, ends_as,
    id, at, recorded_at.

    A conversation is (order_id, step, number): step is reserve, release, issue or return, number that of the
    return, else 0. `asked`, `answered` and `refused` are counts of SKUs. `ends_as` is set where the event
    ends a reservation, whatever is still pending. `at` is business time."""
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


def outgoing_commands(records: DataFrame, lock: Lock) -> DataFrame:
    """One row per command in the topics of inventory's commands: id, cause (the event that first caused it), sent.

    `sent` counts how often it was written: a command without an outcome is retried with the same id. `records` are
    those of these topics with the columns of `with_columns`: single commands, and batches of messages."""
    columns = ("id", "causation_id", "recorded_at", "offset")
    commands = records.where(F.col("type") != InboxBatch.TYPE).select(*columns)
    for number in lock.ids(InboxBatch.TYPE):
        body = from_avro(F.expr("substring(value, 6)"), lock.text(number), {"mode": "PERMISSIVE"})
        batches = records.where(F.col("schema_id") == number).select(*columns[2:], body.alias("batch"))
        groups = batches.select(*columns[2:], F.explode("batch.groups").alias("group"))
        messages = groups.select("*", F.explode("group.messages").alias("message"))
        own_cause = F.when(F.col("group.causation_id") == "", F.col("message.id"))
        cause = F.coalesce(own_cause, F.col("group.causation_id"))
        commands = commands.union(messages.select("message.id", cause.alias("causation_id"), *columns[2:]))
    earliest = F.min_by("causation_id", F.struct("recorded_at", "offset"))
    return commands.groupBy("id").agg(earliest.alias("cause"), F.count("*").alias("sent"))


COUNTS = ("number", "asked", "answered", "refused")


def _event(
    log: Events, name: str, step: str, *, ends_as: Column | None = None, **counts: Column
) -> DataFrame:
    """`counts`: those of COUNTS that are not 0."""
    return log.of(f"daybook.order.{name}").select(
        *("order_id", F.lit(step).alias("step")),
        *(counts.get(count, F.lit(0)).cast("int").alias(count) for count in COUNTS),
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
