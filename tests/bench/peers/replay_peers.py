"""Other ways from the log, or the lake, to the same totals: Python, DuckDB, Spark with a Python function."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
from confluent_kafka import Message, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.lake.views import connect
from analytics.offsets import Offsets
from analytics.replay import Replay
from contracts.lock import load_lock
from contracts.order.events import OrderConfirmed
from services.kernel.log.clients import follower

Totals = dict[str, tuple[int, int, int, int]]
"""Country → events, gross, units, the highest version."""

FRAME = 5
FETCHED = 10_000


def python_fold(kafka: str, ends: Offsets) -> Totals:
    """One process: headers to a dict, fastavro, a dict of totals."""
    totals: Totals = {}
    for record in _records(kafka, ends):
        headers = dict(record.headers())
        event = _decoded(record.value())
        events, gross, units, version = totals.get(event["country"], (0, 0, 0, 0))
        totals[event["country"]] = (
            events + 1,
            gross + event["gross"],
            units + event["units"],
            max(version, int(headers["ce_sequence"])),
        )
    return totals


def duckdb_fed(kafka: str, ends: Offsets) -> Totals:
    """One process decodes into columns, DuckDB sums them."""
    columns: tuple[list[Any], ...] = ([], [], [], [])
    for record in _records(kafka, ends):
        headers = dict(record.headers())
        event = _decoded(record.value())
        row = (event["country"], event["gross"], event["units"], int(headers["ce_sequence"]))
        for column, content in zip(columns, row, strict=True):
            column.append(content)
    events = pa.table(dict(zip(("country", "gross", "units", "version"), columns, strict=True)))
    with duckdb.connect() as connection:
        connection.register("events", events)
        rows = connection.execute(
            "SELECT country, count(*), sum(gross)::BIGINT, sum(units)::BIGINT, max(version) "
            "FROM events GROUP BY country"
        ).fetchall()
    return {country: (count, gross, units, version) for country, count, gross, units, version in rows}


def duckdb_of_lake(lake: Path) -> Totals:
    """DuckDB on the same Delta tables that Spark reads."""
    with connect(lake, {}) as connection:
        rows = connection.execute(
            "SELECT country, count(*), (sum(gross) * 1000000)::BIGINT, sum(units)::BIGINT, max(version) "
            "FROM order_confirmed GROUP BY country"
        ).fetchall()
    return {country: (count, gross, units, version) for country, count, gross, units, version in rows}


def scalar_udf(log: Replay, *, arrow: bool) -> DataFrame:
    """Spark as it is often written: a Python function for each value; country, gross, units, version.

    With `arrow`, values come in columns (Spark 4.2's own choice); without, each row is pickled, as it was
    before. Headers are looked up by Spark, as in ours: only decoding is Python's.
    """
    decoded = F.udf(_chosen, "country string, gross long, units int", useArrow=arrow)
    rows = log.log.where("fault IS NULL").select("version", decoded("value").alias("event"))
    return rows.select("event.*", "version")


def scalar_udf_of_headers(log: DataFrame) -> DataFrame:
    """The same with headers decoded in Python too: the source's rows, pickled one by one."""
    read = F.udf(_chosen_with_headers, "country string, gross long, units int, version int", useArrow=False)
    return log.select(read("value", "headers").alias("event")).select("event.*")


def _chosen(value: bytes) -> tuple[Any, ...]:
    event = _decoded(value)
    return event["country"], event["gross"], event["units"]


def _chosen_with_headers(value: bytes, headers: Sequence[tuple[str, bytes]]) -> tuple[Any, ...]:
    return (*_chosen(value), int(dict(headers)["ce_sequence"]))


def _decoded(value: bytes) -> dict[str, Any]:
    event: dict[str, Any] = fastavro.schemaless_reader(io.BytesIO(value[FRAME:]), _schema())
    return event


@cache
def _schema() -> Any:
    lock = load_lock()
    return fastavro.parse_schema(lock.schema(lock.ids(OrderConfirmed.TYPE)[-1]))


def _records(kafka: str, ends: Offsets) -> Iterator[Message]:
    """Committed records before `ends`; tuned for large fetches, as Spark's source is."""
    left = {(topic, number): end for topic, parts in ends.items() for number, end in parts.items() if end}
    consumer = follower(
        kafka,
        [TopicPartition(topic, number, 0) for topic, number in left],
        {
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 131_072,
            "fetch.max.bytes": 67_108_864,
            "max.partition.fetch.bytes": 8_388_608,
            "log_level": 3,
        },
    )
    try:
        while left:
            for record in consumer.consume(FETCHED, 0.2):
                if record.offset() < left.get((record.topic(), record.partition()), 0):
                    yield record
            for position in consumer.position([TopicPartition(*partition) for partition in left]):
                if position.offset >= left[position.topic, position.partition]:
                    del left[position.topic, position.partition]
    finally:
        consumer.close()
