"""The log as DataFrames: committed records only, up to offsets fixed beforehand, nothing dropped.

kafka ─► log (headers as columns, `fault`) ─┬─► events      every envelope
                                            ├─► of(type)    one typed frame per event type, newest shape
                                            └─► set_aside   what could not be read: position and reason
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType

from analytics.decoding import upcast_batches
from analytics.envelope import (
    ENVELOPE,
    EVENT_TOPICS,
    POSITION,
    before,
    event_types,
    once,
    with_columns,
    with_fault,
)
from analytics.offsets import Offsets, end_offsets
from contracts.lock import Lock, load_lock

# Large fetches: nearly twice the rate of Spark's defaults.
SOURCE = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "5000",
    "kafka.fetch.max.bytes": "104857600",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.receive.buffer.bytes": "1048576",
    "includeHeaders": "true",
    "failOnDataLoss": "true",
}


@dataclass(frozen=True)
class Replay:
    """One reading of the log. `ends` are its exclusive end offsets; the frames are lazy."""

    ends: Offsets
    log: DataFrame
    lock: Lock

    @property
    def events(self) -> DataFrame:
        """Every envelope that is one: the columns of ENVELOPE. Bodies are not looked at."""
        return self.log.where("fault IS NULL").select(*ENVELOPE)

    def of(self, type_name: str) -> DataFrame:
        """The events of a type: the columns of ENVELOPE, then the fields of its newest schema."""
        *older, newest = self.lock.ids(type_name)
        rows = self.log.where("fault IS NULL")
        decoded = rows.where(F.col("schema_id") == newest).select(*ENVELOPE, once(self._decoded(newest)))
        current = decoded.where(F.col(_first_field(self.lock, newest)).isNotNull())
        if not older:
            return current
        upcasted = _upcasted(rows.where(F.col("schema_id").isin(older)), current)
        return current.unionByName(upcasted.where("NOT undecodable").drop("undecodable"))

    @property
    def set_aside(self) -> DataFrame:
        """What is in the log and could not be read: topic, partition, offset, entity, schema_id, reason."""
        columns = (*POSITION, "entity", "schema_id")
        faulty = self.log.where("fault IS NOT NULL").select(*columns, F.col("fault").alias("reason"))
        rows = self.log.where("fault IS NULL")
        broken = rows.where(self._undecodable()).select(*columns, F.lit("undecodable").alias("reason"))
        found = [faulty, broken]
        for type_name in event_types(self.lock):
            *older, newest = self.lock.ids(type_name)
            if older:
                shape = rows.select(*ENVELOPE, once(self._decoded(newest)))
                upcasted = _upcasted(rows.where(F.col("schema_id").isin(older)), shape).where("undecodable")
                found.append(upcasted.select(*columns, F.lit("undecodable").alias("reason")))
        return reduce(DataFrame.unionByName, found)

    def kept(self) -> "Replay":
        """The same, read from the broker once and kept while Spark has room (memory, then disk)."""
        return replace(self, log=self.log.persist(StorageLevel.MEMORY_AND_DISK))

    def before(self, offsets: Offsets) -> "Replay":
        """Only what lies before these offsets; a partition that is not named is left out."""
        return replace(self, ends=offsets, log=self.log.where(before(offsets)))

    def _decoded(self, schema_id: int) -> Column:
        # PERMISSIVE: a value that cannot be decoded becomes a struct of nulls instead of ending the job.
        return from_avro(F.expr("substring(value, 6)"), self.lock.text(schema_id), {"mode": "PERMISSIVE"})

    def _undecodable(self) -> Column:
        found = F.when(F.lit(False), F.lit(False))
        for type_name in event_types(self.lock):
            newest = self.lock.ids(type_name)[-1]
            first = self._decoded(newest)[_first_field(self.lock, newest)]
            found = found.when(F.col("schema_id") == newest, first.isNull())
        return found.otherwise(F.lit(False))


def replay(
    session: SparkSession, kafka: str, topics: Sequence[str] = EVENT_TOPICS, ends: Offsets | None = None
) -> Replay:
    """The log of `topics` from its beginning to `ends` (default: where it ends now).

    Raises LogUnreachable. Records that are deleted while reading end the job (`failOnDataLoss`).
    """
    ends = end_offsets(kafka, topics) if ends is None else ends
    starts = {topic: {str(number): -2 for number in partitions} for topic, partitions in ends.items()}
    source = (
        session.read.format("kafka")
        .options(**SOURCE)
        .option("kafka.bootstrap.servers", kafka)
        .option("assign", json.dumps({topic: sorted(partitions) for topic, partitions in ends.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )
    lock = load_lock()
    return Replay(ends, with_fault(with_columns(source), lock), lock)


def _first_field(lock: Lock, schema_id: int) -> str:
    """Where it is null, the value could not be decoded: it is the entity's id, never null in a schema."""
    return str(lock.schema(schema_id)["fields"][0]["name"])


def _upcasted(rows: DataFrame, shape: DataFrame) -> DataFrame:
    result = shape.schema.add("undecodable", BooleanType())
    batches = partial(_upcast, schema=to_arrow_schema(result, timezone="UTC"))
    return rows.select(*ENVELOPE, "value").mapInArrow(batches, result)


def _upcast(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return upcast_batches(batches, schema, ENVELOPE)
