"""What every record carries besides its body, as columns; and what is wrong with it, if anything."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.offsets import Offsets
from contracts.lock import KERNEL, Lock

EVENT_TOPICS = ("order.events", "inventory.events")
POSITION = ("topic", "partition", "offset")
ENVELOPE = (
    *POSITION,
    *(
        "entity",
        "id",
        "type",
        "version",
        "recorded_at",
        "correlation_id",
        "causation_id",
        "epoch",
        "schema_id",
    ),
)
# What `with_columns` makes.
LOG_COLUMNS = """
    topic string, partition int, offset long, entity string, id string, type string, version int,
    recorded_at timestamp, correlation_id string, causation_id string, epoch long, schema_id long,
    value binary
"""


def with_columns(source: DataFrame, **more: Column) -> DataFrame:
    """Headers and the value's schema id as columns; null where they are missing or not of their form.

    `more` are made of the source's columns and of `names` and `texts`: the headers, the last one first.
    """
    # A record may repeat a header: the last one counts, here as in the services. Two arrays and a search in
    # them cost half of what a map for each record does.
    arrays = {
        name: F.reverse(F.col(f"headers.{part}")) for name, part in (("names", "key"), ("texts", "value"))
    }
    text = {
        name: header_value(f"ce_{header}").cast("string")
        for name, header in {
            "entity": "subject",
            "id": "id",
            "type": "type",
            "version": "sequence",
            "recorded_at": "time",
            "correlation_id": "correlationid",
            "causation_id": "causationid",
            "epoch": "epoch",
        }.items()
    }
    text["version"] = text["version"].try_cast("int")
    text["recorded_at"] = text["recorded_at"].try_cast("timestamp")
    text["epoch"] = text["epoch"].try_cast("long")
    columns = {**{name: F.col(name) for name in POSITION}, **text, "schema_id": schema_id()}
    columns |= {"value": F.col("value"), **more}
    row = F.struct(*(column.alias(name) for name, column in columns.items()))
    return source.withColumns(arrays).select(once(row))


def header_value(name: str) -> Column:
    """The bytes of a header, the last one of that name; null where there is none, or it has no value."""
    return F.get("texts", F.array_position("names", name).cast("int") - 1)


def schema_id() -> Column:
    """The schema id of `value`; null where it is not framed."""
    framed = F.expr("length(value) >= 5 AND hex(substring(value, 1, 1)) = '00'")
    return F.when(framed, F.conv(F.expr("hex(substring(value, 2, 4))"), 16, 10).cast("long"))


def once(row: Column) -> Column:
    """The fields of a struct as columns, computed once each; all null where it is null.

    Spark moves a filter below the projection that it stands on, and with it a copy of each expression that
    it names: a header would be looked up and a value decoded again for every mention. It moves none below
    a generator.
    """
    return F.inline(F.array(row))


def before(offsets: Offsets) -> Column:
    """Whether a record lies before these offsets; none does in a partition that is not named."""
    parts = [
        (F.col("topic") == topic) & (F.col("partition") == number) & (F.col("offset") < offset)
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
    ]
    return reduce(Column.__or__, parts, F.lit(False))


def event_types(lock: Lock) -> list[str]:
    """Every event type, in the lock's order. What opens an epoch is no event."""
    types = (entry.type for entry in lock.entries if entry.topic in EVENT_TOPICS)
    return list(dict.fromkeys(name for name in types if not name.startswith(KERNEL)))
