"""Two streams, windowed and joined: late records count within the watermark, and every line counts once."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from analytics.live_log import append_new, held_by_hour, live
from analytics.replay import replay
from contracts.inventory.events import StockReserved
from contracts.lock import load_lock
from contracts.order.events import OrderPlaced
from services.kernel.record.envelope import Metadata, write_headers
from tests.integration.analytics.log_writer import (
    Topics,
    await_decided,
    create_topics,
    entity_of,
    framed,
    write_raw,
    writer,
)
from tests.integration.analytics.shop import placed

MINUTE = 60_000_000
HOUR = 60 * MINUTE
START = 361_111 * HOUR
WRITTEN: Counter[tuple[str, str]] = Counter()
"""Events by topic and entity."""


def produce(producer: Producer, topics: Topics, event: OrderPlaced | StockReserved, minute: int) -> None:
    """Writes an event that was recorded so many minutes after START."""
    topic = topics.orders if isinstance(event, OrderPlaced) else topics.inventory
    entity, at = entity_of(event), START + minute * MINUTE
    WRITTEN[topic, entity] += 1
    version = WRITTEN[topic, entity]
    meta = Metadata(f"{entity}-{version}", event.TYPE, entity, "test", at, "corr", "cause", 1, version)
    plain = {**vars(event), "lines": [vars(line) for line in getattr(event, "lines", ())], "charges": []}
    write_raw(producer, topic, entity, framed(load_lock().ids(event.TYPE)[-1], plain), write_headers(meta))


def order(
    producer: Producer, topics: Topics, order_id: str, minute: int, held: int | None, units: int = 2
) -> None:
    """An order of one SKU, and its reservation at minute `held`."""
    produce(producer, topics, placed(order_id, "A", units), minute)
    if held is not None:
        produce(producer, topics, StockReserved("A", order_id, units, START), held)


def hours(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(folder / "rows")).collect())


@pytest.fixture
def one_partition(spark: SparkSession) -> Iterator[None]:
    """State is kept by partition: one partition is fastest for a few records."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before or "4")


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("one_partition")
def test_late_records_are_joined_and_a_killed_run_repeats_nothing(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topics = create_topics(kafka)

    def run() -> None:
        append_new(held_by_hour(live(spark, kafka, (topics.orders, topics.inventory))), tmp_path)

    with writer(kafka) as producer:
        producer.begin_transaction()
        order(producer, topics, "in-time", 1, held=2)
        order(producer, topics, "late", 5, held=None, units=3)
        order(producer, topics, "never", 6, held=None, units=4)
        order(producer, topics, "also", 14, held=15, units=5)
        producer.commit_transaction(30)
        await_decided(kafka, producer.topics)
        run()
        assert hours(spark, tmp_path) == [], "the hour is still open"

        producer.begin_transaction()
        produce(producer, topics, StockReserved("A", "late", 3, START), 6)
        order(producer, topics, "too-late", 2, held=2)
        order(producer, topics, "closes", 180, held=181)
        write_raw(producer, topics.orders, "foreign", b"{}", None)
        producer.commit_transaction(30)
    run()
    first = (datetime.fromtimestamp(START / 1e6, UTC).replace(tzinfo=None), 4, 14, 3, 10)
    assert hours(spark, tmp_path) == [first]

    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink()
    run()
    assert hours(spark, tmp_path) == [first], "killed after the output, before its position was written"

    everything = held_by_hour(replay(spark, kafka, (topics.orders, topics.inventory)))
    batch = {tuple(row) for row in everything.collect()}
    assert (first[0], 5, 16, 4, 12) in batch, "the batch knows what came too late for the stream"
