"""The golden files, read by Spark: the same rows as in the services."""

import json
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from analytics.envelope import ENVELOPE, event_types
from analytics.log_rule import NOTHING_FOUND, with_fault
from analytics.replay import Replay
from contracts.lock import load_lock
from tests.contract.golden import FOLDER
from tests.unit.analytics.log_columns import LOG_COLUMNS

AT = datetime(2011, 3, 13, tzinfo=UTC)


def golden_log(session: SparkSession) -> Replay:
    """One record for each golden value of an event, of every version."""
    lock = load_lock()
    ids = [schema_id for name in event_types(lock) for schema_id in lock.ids(name)]
    rows = []
    for offset, schema_id in enumerate(ids):
        name = lock.type_of(schema_id)
        value = (FOLDER / f"{name}.v{lock.version(schema_id)}.avro").read_bytes()
        envelope = ("entity", f"id-{offset}", name, 1, AT, "correlation", "cause", 1, schema_id)
        rows.append((lock.topic_of(name), 0, offset, *envelope, value))
    frame = session.createDataFrame(rows, StructType.fromDDL(LOG_COLUMNS))
    return Replay({}, with_fault(frame, NOTHING_FOUND), lock)


def as_text(frame: DataFrame) -> DataFrame:
    """The body of each event as the golden files write it: times as micros."""
    fields = [field for field in frame.schema.fields if field.name not in ENVELOPE]
    body = F.to_json(F.struct(*map(_plain, fields)), {"ignoreNullFields": "false"})
    return frame.select("schema_id", body.alias("body"))


def _plain(field: StructField) -> Column:
    column = F.col(field.name)
    return (F.unix_micros(column) if isinstance(field.dataType, TimestampType) else column).alias(field.name)


def test_golden_values_are_the_rows_of_the_services(spark: SparkSession) -> None:
    log, lock = golden_log(spark), load_lock()
    frames = [as_text(log.of(name)) for name in event_types(lock)]
    rows: dict[int, Any] = {
        row["schema_id"]: json.loads(row["body"]) for row in reduce(DataFrame.unionByName, frames).collect()
    }
    expected = {
        schema_id: json.loads((FOLDER / f"{name}.v{lock.version(schema_id)}.json").read_text("utf-8"))
        for name in event_types(lock)
        for schema_id in lock.ids(name)
    }
    assert len(expected) > 15
    assert rows == expected
