"""Classifies the records of an events topic: Spark's own implementation of docs/adr/0017, for a whole log.

`services/kernel/log/rule.py` does the same record by record; `tests/contract/log_rule_cases.py` tests both. Nearly
every record is the next event of its stream, so the rule finds the others:

    records ─► `kind`: what each is by itself ─► sorted by key ─► stream_steps.py ─► Exceptions ─► `fault`

It honours `site.journal`: the decisions on records, and the recorded epochs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from analytics.envelope import OPENING, POSITION, event_types, once, struct
from analytics.offsets import REQUEST_SECONDS, LogUnreachable
from analytics.stream_steps import APPLIED, EPOCH, FOUND, GIVEN, STOPPED, TopicPartition, exceptions
from contracts.lock import Lock
from services.kernel.log.control import JOURNAL, read_journal
from services.kernel.log.reader import NotCaughtUp, partitions_by_topic
from services.kernel.log.rule import FIRST_EPOCH, STREAMS, Journal


def read_decisions(kafka: str) -> Journal:
    """Returns the recorded decisions; none if the log has no journal. Raises LogUnreachable."""
    try:
        return read_journal(kafka) if JOURNAL in partitions_by_topic(kafka, REQUEST_SECONDS) else Journal()
    except (KafkaException, NotCaughtUp) as error:
        raise LogUnreachable(f"the broker at {kafka} does not respond: {error}") from error


WAITING = "waiting"
NO_FAULT = (OPENING, APPLIED)
END_BYTES = 16

Intervals = Mapping[TopicPartition, Sequence[tuple[int, int]]]
"""By partition, the offsets from which another epoch is open, and which."""

EXCEPTION = FOUND.remove(FOUND.get_field_index("epoch"))
Exceptions: TypeAlias = pa.Table
"""The records that are not the next event of their stream, sorted by position, with the columns of EXCEPTION. `what` is
the reason of a foreign record, `opening` or `applied`. Or it is in STOPPED: from this record on, the events of its key,
`entity`, do not count; only such a row has an entity. An Arrow table, because there may be millions."""
NOTHING_FOUND: Exceptions = EXCEPTION.empty_table()
BROADCAST_ROWS = 100_000  # each process holds so many; more are joined like any table


def stops(exceptions: Exceptions) -> Exceptions:
    """Those of keys that stopped."""
    return exceptions.filter(pc.field("entity").is_valid())


def in_order(exceptions: Exceptions) -> Exceptions:
    """Sorted by position."""
    return exceptions.sort_by([(name, "ascending") for name in POSITION])


def find_exceptions(
    log: DataFrame, partitions: Mapping[str, int], decisions: Journal, lock: Lock
) -> Exceptions:
    """Reads the log that `with_kind` made; twice where an epoch is not open. `partitions`: how many each topic has."""
    prepared = log.select("*", once(decodable())).withColumns(
        {
            "verdict": F.when(F.col("kind").isNull(), verdict_on(decisions)),
            "readable": F.col("kind").isNull() & _readable(lock),
        }
    )
    return exceptions_among(prepared, partitions, decisions)


def exceptions_among(judged: DataFrame, partitions: Mapping[str, int], decisions: Journal) -> Exceptions:
    """The same, of records whose `verdict` and `readable` are known: the columns of GIVEN."""
    complete = (F.col("kind").isNull() | (F.col("kind") != "no_envelope")) & F.col("entity").isNotNull()
    prepared = judged.withColumn("entity", F.when(complete, F.col("entity")))
    searched = _find(prepared, partitions)
    marks = searched.filter(pc.field("what").isin((EPOCH, OPENING))).to_pylist()
    epochs, openings = open_epochs(marks, decisions)
    if not _all_open(marks, epochs):
        closed = F.col("kind").isNull() & _is_closed(epochs, decisions)
        corrected = prepared.withColumn("kind", F.when(closed, "epoch_not_open").otherwise(F.col("kind")))
        searched = _find(corrected, partitions)
    others = searched.filter(~pc.field("what").isin((EPOCH, OPENING)))
    key = pc.if_else(pc.is_in(others["what"], pa.array(STOPPED)), others["entity"], None)
    columns = {**{name: others[name] for name in POSITION}, "entity": key, "what": others["what"]}
    opened = pa.Table.from_pylist(openings, EXCEPTION)
    return in_order(pa.concat_tables((pa.table(columns, EXCEPTION), opened)))


def with_fault(log: DataFrame, exceptions: Exceptions) -> DataFrame:
    """The column `fault`: why a record is no event that counts; null where it is one."""
    fault, columns = F.lit(None).cast("string"), log.columns
    if exceptions.num_rows:
        named = _frame(log, exceptions.select([*POSITION, "what"]))
        log, fault = log.join(named, list(POSITION), "left"), F.col("what")
    if (stopped := stops(exceptions)).num_rows:
        keys = _frame(log, stopped).select("topic", "partition", "entity", F.col("offset").alias("stop"))
        log = log.join(keys, ["topic", "partition", "entity"], "left")
        fault = F.coalesce(fault, F.when(F.col("offset") > F.col("stop"), WAITING))
    return log.select(*columns, fault.alias("fault"))


def _frame(log: DataFrame, exceptions: Exceptions) -> DataFrame:
    frame = log.sparkSession.createDataFrame(exceptions)
    return F.broadcast(frame) if exceptions.num_rows <= BROADCAST_ROWS else frame


def open_epochs(
    marks: Iterable[Mapping[str, Any]], decisions: Journal
) -> tuple[Intervals, list[dict[str, Any]]]:
    """Where epochs open, and the openings as rows of EXCEPTION. A recorded epoch also opens with its first event."""
    by_partition: dict[TopicPartition, set[tuple[int, int, bool]]] = {}
    for row in marks:
        opening = row["what"] == OPENING
        if opening or (row["what"] == EPOCH and row["epoch"] in decisions.epochs.get(row["topic"], ())):
            topic_partition = (row["topic"], row["partition"])
            by_partition.setdefault(topic_partition, set()).add((row["offset"], row["epoch"], opening))
    epochs: dict[TopicPartition, list[tuple[int, int]]] = {}
    records = []
    for (topic, partition), openings in by_partition.items():
        now = FIRST_EPOCH
        for offset, epoch, opening in sorted(openings):
            if epoch > now:
                epochs.setdefault((topic, partition), []).append((offset, epoch))
            if opening:
                what = OPENING if epoch >= now else "epoch_not_open"
                records.append({"topic": topic, "partition": partition, "offset": offset, "what": what})
            now = max(now, epoch)
    return epochs, records


def decodable() -> Column:
    """`value` for `decoded`: `whole` is the event with its digest (`end`) appended."""
    digest = F.unhex(F.md5("value"))
    return struct({"end": digest, "whole": F.concat(F.expr("substring(value, 6)"), digest)})


def decoded(schema_id: int, lock: Lock) -> Column:
    """`whole` as `event` and `end`: an event as long as its schema says has just its digest behind it. Nulls where it
    cannot be decoded."""
    end = {"type": "fixed", "name": "End", "namespace": "daybook", "size": END_BYTES}
    fields = [{"name": "event", "type": lock.schema(schema_id)}, {"name": "end", "type": end}]
    schema = {"type": "record", "name": "Whole", "namespace": "daybook", "fields": fields}
    return from_avro(F.col("whole"), msgspec.json.encode(schema).decode(), {"mode": "PERMISSIVE"})


def _readable(lock: Lock) -> Column:
    """Whether `value` is an event of a known schema, and nothing behind it."""
    readable = F.when(F.lit(False), F.lit(False))
    for number in (number for name in event_types(lock) for number in lock.ids(name)):
        readable = readable.when(F.col("schema_id") == number, _is_of(number, lock))
    return F.coalesce(readable, F.lit(False))


def _is_of(schema_id: int, lock: Lock) -> Column:
    # Spark would decode a value again for every part of it that is named, but not for a lambda's argument.
    return F.exists(F.array(decoded(schema_id, lock)), lambda made: is_event(made, schema_id, lock))


def is_event(made: Column, schema_id: int, lock: Lock) -> Column:
    """Whether `made`, which `decoded` returned, is an event, with nothing behind it, and all its text UTF-8, which
    `from_avro` does not check. Null where it could not be decoded."""
    text = F.is_valid_utf8(F.concat_ws("|", *_strings(made["event"], lock.schema(schema_id))))
    return (made["end"] == F.col("end")) & text


def _strings(value: Column, schema: Any, *, many: bool = False) -> Iterator[Column]:
    match schema:
        case "string":
            yield F.array_join(value, "|") if many else value
        case {"type": "record", "fields": fields}:
            for part in fields:
                yield from _strings(value[part["name"]], part["type"], many=many)
        case {"type": "array", "items": items}:
            yield from _strings(value, items, many=True)
        case ["null", branch]:
            yield from _strings(value, branch, many=many)


def _find(prepared: DataFrame, partitions: Mapping[str, int]) -> pa.Table:
    ordered = prepared.select(*StructType.fromDDL(GIVEN).names).repartition("topic", "partition", "entity")
    ordered = ordered.sortWithinPartitions("topic", "partition", "entity", "offset")
    run = partial(exceptions, partitions=dict(partitions))
    return ordered.mapInArrow(run, from_arrow_schema(FOUND)).toArrow()


def _all_open(marks: Iterable[Mapping[str, Any]], epochs: Intervals) -> bool:
    """Whether the events of each epoch stand where it is open."""
    return all(
        _epoch_at(epochs.get((row["topic"], row["partition"]), ()), row["offset"]) == row["epoch"]
        for row in marks
        if row["what"] == EPOCH
    )


def _epoch_at(opened: Sequence[tuple[int, int]], offset: int) -> int:
    return max((epoch for since, epoch in opened if since <= offset), default=FIRST_EPOCH)


def _is_closed(epochs: Intervals, decisions: Journal) -> Column:
    """Whether a record's epoch is not open; a later one that is recorded would open with it."""
    now = _open_epoch(epochs)
    recorded = (
        (F.col("topic") == topic) & F.col("epoch").isin(set(complete))
        for topic, complete in decisions.epochs.items()
    )
    opens = (F.col("epoch") > now) & reduce(Column.__or__, recorded, F.lit(False))
    return (F.col("epoch") != now) & ~opens


def _open_epoch(epochs: Intervals) -> Column:
    epoch_column = F.when(F.lit(False), FIRST_EPOCH)
    for (topic, partition), opened in epochs.items():
        here = (F.col("topic") == topic) & (F.col("partition") == partition)
        for since, epoch in reversed(opened):
            epoch_column = epoch_column.when(here & (F.col("offset") >= since), epoch)
    return epoch_column.otherwise(FIRST_EPOCH)


def verdict_on(decisions: Journal) -> Column:
    """What was decided about a record; it compares the value's digest only in streams with decisions."""
    if not decisions.verdicts:
        return F.lit(None).cast("string")
    of_topic = [part for topic, name in STREAMS.items() for part in (F.lit(topic), F.lit(name))]
    name = F.coalesce(F.try_element_at(F.create_map(*of_topic), F.col("topic")), F.col("topic"))
    stream = F.concat_ws("/", name, "entity")
    digest = F.sha2(F.coalesce("value", F.expr("X''")), 256)
    pairs = [
        F.lit(part)
        for (about, version, event_id, value), verdict in decisions.verdicts.items()
        for part in (f"{about}|{version}|{event_id}|{value}", verdict)
    ]
    subject = F.concat_ws("|", stream, F.col("version").cast("string"), "id", digest)
    verdict = F.try_element_at(F.create_map(*pairs), subject)
    return F.when(stream.isin({about for about, *_ in decisions.verdicts}), verdict)
