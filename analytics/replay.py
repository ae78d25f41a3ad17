"""The log as DataFrames: committed records only, up to offsets fixed beforehand, nothing dropped.

kafka ─► log (headers as columns, `fault`) ─┬─► events      every envelope that counts
                                            ├─► of(type)    one typed frame per event type, newest shape
                                            └─► set_aside   what does not count: position and reason

log_rule.py decides what counts, once for the whole log: so the log is read twice, unless it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, StructType

from analytics.decoder import upcast_batches
from analytics.envelope import ENVELOPE, EVENT_TOPICS, POSITION, before, once, with_columns, with_kind
from analytics.log_rule import (
    NO_FAULT,
    NOTHING_FOUND,
    Exceptions,
    find_exceptions,
    read_decisions,
    with_fault,
)
from analytics.offsets import Offsets, stable_ends
from contracts.lock import Lock, load_lock
from services.kernel.log.clients import Connection

# Large fetches: nearly twice the rate of Spark's defaults.
SOURCE = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "5000",
    "kafka.fetch.max.bytes": "104857600",
    "kafka.max.partition.fetch.bytes": "2097152",
    "kafka.receive.buffer.bytes": "1048576",
    "kafkaConsumer.pollTimeoutMs": "60000",  # Spark's own: two minutes for a broker that is dead
    "includeHeaders": "true",
    "failOnDataLoss": "true",
}
EARLIEST = -2  # to Spark's Kafka source


@dataclass(frozen=True)
class Replay:
    """One replay of the log. `ends` are its exclusive end offsets; the frames are lazy. `exceptions` are the records
    that are not the next event of their stream, `kept` what is on Spark's scratch disk until `unpersist`."""

    ends: Offsets
    log: DataFrame
    lock: Lock
    exceptions: Exceptions = field(default_factory=lambda: NOTHING_FOUND)
    kept: DataFrame | None = field(default=None, kw_only=True)

    @property
    def events(self) -> DataFrame:
        """Every event that counts: the columns of ENVELOPE, without bodies."""
        return self.log.where("fault IS NULL").select(*ENVELOPE)

    def of(self, type_name: str) -> DataFrame:
        """The events of a type: the columns of ENVELOPE, then the fields of its newest schema."""
        *older, newest = self.lock.ids(type_name)
        # PERMISSIVE: a value that cannot be decoded becomes a struct of nulls instead of ending the job.
        value = from_avro(F.expr("substring(value, 6)"), self.lock.text(newest), {"mode": "PERMISSIVE"})
        rows = self.log.where("fault IS NULL")
        current = rows.where(F.col("schema_id") == newest).select(*ENVELOPE, once(value))
        if not older:
            return current
        upcasted = upcasted_to(current, rows.where(F.col("schema_id").isin(older)))
        return current.unionByName(upcasted.where("NOT undecodable").drop("undecodable"))

    @property
    def set_aside(self) -> DataFrame:
        """The records that do not count, but openings: topic, partition, offset, entity, schema_id, reason. `reason`
        says why a record is foreign, or that its key stopped: `forked`, `unreadable`, `waiting`."""
        aside = self.log.where(F.col("fault").isNotNull() & ~F.col("fault").isin(*NO_FAULT))
        return aside.select(*POSITION, "entity", "schema_id", F.col("fault").alias("reason"))

    def before(self, offsets: Offsets) -> "Replay":
        """Returns only what lies before these offsets; an unnamed partition is left out."""
        return replace(self, ends=offsets, log=self.log.where(before(offsets)))

    def unpersist(self) -> None:
        """Removes what was kept."""
        if self.kept is not None:
            self.kept.unpersist()


def replay(
    session: SparkSession,
    kafka: str,
    topics: Sequence[str] = EVENT_TOPICS,
    ends: Offsets | None = None,
    *,
    kept: bool = False,
) -> Replay:
    """Returns the log of `topics` from its beginning to `ends` (default: its current end). Raises LogUnreachable.
    Records that are deleted while reading end the job (`failOnDataLoss`). With `kept`, it is read from the broker once
    and kept on Spark's scratch disk: a log is larger than memory."""
    ends = stable_ends(kafka, topics) if ends is None else ends
    source, lock = read_topics(session, kafka, ends), load_lock()
    records = with_kind(source)
    if kept:
        records = records.persist(StorageLevel.DISK_ONLY)
    partitions = {topic: len(numbers) for topic, numbers in ends.items()}
    exceptions = find_exceptions(records, partitions, read_decisions(kafka), lock)
    log = with_fault(records.drop("kind") if kept else with_columns(source), exceptions)
    return Replay(ends, log, lock, exceptions, kept=records if kept else None)


def read_topics(session: SparkSession, kafka: str, ends: Offsets, starts: Offsets | None = None) -> DataFrame:
    """The committed records of topics from `starts` (default: their beginning), as Spark's Kafka source gives them."""
    begin = {
        topic: {number: (starts or {}).get(topic, {}).get(number, EARLIEST) for number in partitions}
        for topic, partitions in ends.items()
    }
    return (
        session.read.format("kafka")
        .options(**SOURCE)
        .options(**Connection(kafka).java("kafka."))
        .option("assign", json_text({topic: sorted(partitions) for topic, partitions in ends.items()}))
        # Splits partitions by ranges of offsets where there are more cores than partitions.
        .option("minPartitions", session.sparkContext.defaultParallelism)
        .option("startingOffsets", json_text(begin))
        .option("endingOffsets", json_text(ends))
        .load()
    )


def json_text(option: object) -> str:
    return msgspec.json.encode(option).decode()


def upcasted_to(shape: DataFrame, rows: DataFrame) -> DataFrame:
    """Records of older schemas in the `shape` of the newest, and `undecodable`."""
    result = StructType([*shape.schema.fields]).add("undecodable", BooleanType())
    batches = partial(upcast_batches, schema=to_arrow_schema(result, timezone="UTC"), kept=ENVELOPE)
    return rows.select(*ENVELOPE, "value").mapInArrow(batches, result)
