"""The envelope of every record as columns, and the reason if it is not a valid envelope."""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.offsets import Offsets, flat
from contracts.kernel.records import EpochOpened
from contracts.lock import KERNEL, Lock
from contracts.topics import TOPICS

EVENT_TOPICS = tuple(own.events for own in TOPICS.values())
POSITION = ("topic", "partition", "offset")
ENVELOPE = (
    *(*POSITION, "entity", "id", "type", "version", "recorded_at"),
    *("correlation_id", "causation_id", "epoch", "schema_id"),
)
REQUIRED = ("ce_id", "ce_type", "ce_subject", "ce_source", "ce_correlationid", "ce_causationid")
OPTIONAL = ("ce_requesthash", "ce_transaction", "traceparent")
NUMBER = r"\A[1-9][0-9]{0,9}\z"
TIME = r"\A(19[7-9]|[2-9][0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z\z"
OPENING, OPENING_KEY, LONGEST_KEY, LARGEST_NUMBER = "opening", "#epoch", 2000, 2**31 - 1
HEADERS = {
    "entity": "ce_subject",
    "id": "ce_id",
    "type": "ce_type",
    "version": "ce_sequence",
    "recorded_at": "ce_time",
    "correlation_id": "ce_correlationid",
    "causation_id": "ce_causationid",
    "epoch": "ce_epoch",
}


def with_columns(source: DataFrame) -> DataFrame:
    """Returns headers and schema id as columns; null if missing or malformed."""
    headers = {name: header_value(header) for name, header in HEADERS.items()}
    columns = {**{name: F.col(name) for name in POSITION}, **typed(headers), "schema_id": schema_id()}
    columns["value"] = F.col("value")
    return searchable(source).select(once(struct(columns)))


def with_kind(source: DataFrame, kept: Sequence[str] = ()) -> DataFrame:
    """The columns of ENVELOPE, `value`, `kind`, and those of `source` that are `kept`; `source` is then the name of the
    writer. Looks each header up once, because that is most of the work."""
    headers_ = dict.fromkeys((*REQUIRED, *OPTIONAL, *HEADERS.values()))
    fields_ = {name: header_value(name) for name in headers_}
    fields_ |= {f"has_{name}": F.array_contains("names", name) for name in (*OPTIONAL, "ce_sequence")}
    copied = (*POSITION, "key", "value", *(name for name in kept if name != "source"))
    fields_ |= {name: F.col(name) for name in copied} | {"schema_id": schema_id()}
    raw = searchable(source).select(once(struct(fields_)))
    columns = {name: F.col(name) for name in POSITION}
    columns |= typed({name: F.col(header) for name, header in HEADERS.items()})
    columns |= {name: F.col(name) for name in ("schema_id", "value")} | {"kind": _kind()}
    columns |= {name: _text(f"ce_{name}") if name == "source" else F.col(name) for name in kept}
    return raw.select(once(struct(columns)))


def _kind() -> Column:
    """What a record is, by key and headers only: `opening`, a reason for being foreign, or null."""
    together, optional = (F.concat_ws("|", *(_text(n) for n in names)) for names in (REQUIRED, OPTIONAL))
    spoiled = (F.col(f"has_{name}") & F.col(name).isNull() for name in OPTIONAL)
    envelope = (
        reduce(Column.__and__, (F.length(name) > 0 for name in REQUIRED))
        & ~reduce(Column.__or__, spoiled)
        & _is_number("ce_epoch")
        & (~F.col("has_ce_sequence") | _is_number("ce_sequence"))
        & (_text("ce_time").rlike(TIME) & _text("ce_time").try_cast("timestamp").isNotNull())
        & ~F.contains(together, F.char(F.lit(0)))
        & F.is_valid_utf8(together)
        & F.is_valid_utf8(optional)
    )
    named = (F.col("key") == F.col("ce_subject")) & (F.length("key") <= LONGEST_KEY)
    opening = (_text("ce_type") == EpochOpened.TYPE) & (_text("ce_subject") == OPENING_KEY)
    return (
        F.when(~F.coalesce(envelope, F.lit(False)), "no_envelope")
        .when(~F.coalesce(named, F.lit(False)), "key_differs")
        .when(opening, OPENING)
    )


def searchable(source: DataFrame) -> DataFrame:
    """Adds `names` and `texts`: the headers, the last one first. If a record repeats a header, the last one counts,
    as in the services. Two arrays and a search cost half as much as a map per record."""
    arrays = {
        name: F.reverse(F.col(f"headers.{part}")) for name, part in (("names", "key"), ("texts", "value"))
    }
    return source.withColumns(arrays)


def typed(headers: Mapping[str, Column]) -> dict[str, Column]:
    """The columns of HEADERS, from the bytes of each."""
    text = {name: header.cast("string") for name, header in headers.items()}
    text["version"] = text["version"].try_cast("int")
    text["recorded_at"] = text["recorded_at"].try_cast("timestamp")
    text["epoch"] = text["epoch"].try_cast("long")
    return text


def header_value(name: str) -> Column:
    """The bytes of a header, the last one of that name; null where there is none, or it has no value."""
    return F.get("texts", F.array_position("names", name).cast("int") - 1)


def schema_id() -> Column:
    """The schema id of `value`; null where it is not framed."""
    framed = F.expr("length(value) >= 5 AND hex(substring(value, 1, 1)) = '00'")
    return F.when(framed, F.conv(F.expr("hex(substring(value, 2, 4))"), 16, 10).cast("long"))


def once(row: Column) -> Column:
    """The fields of a struct as columns, computed once each; all null where it is null.

    Spark moves a filter below a projection and copies each expression that the filter uses: a header would be
    looked up, and a value decoded, again for every use. Spark moves no filter below a generator."""
    return F.inline(F.array(row))


def struct(columns: Mapping[str, Column]) -> Column:
    return F.struct(*(column.alias(name) for name, column in columns.items()))


def _text(name: str) -> Column:
    return F.col(name).cast("string")


def _is_number(name: str) -> Column:
    """Tells whether both implementations read it alike: ASCII digits, no leading zero."""
    number = _text(name)
    return number.rlike(NUMBER) & (number.try_cast("long") <= LARGEST_NUMBER)


def before(offsets: Offsets) -> Column:
    """Tells whether a record lies before these offsets; no record of an unnamed partition does."""
    parts = [
        (F.col("topic") == topic) & (F.col("partition") == number) & (F.col("offset") < offset)
        for topic, number, offset in flat(offsets)
    ]
    return reduce(Column.__or__, parts, F.lit(False))


def event_types(lock: Lock) -> list[str]:
    """Returns every event type, in the lock's order. EpochOpened is not an event."""
    types = (entry.type for entry in lock.entries if entry.topic in EVENT_TOPICS)
    return list(dict.fromkeys(name for name in types if not name.startswith(KERNEL)))
