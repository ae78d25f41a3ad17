"""The state as of a moment equals the state of a log that ends at that moment, on a real broker."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from analytics.decoder import read_event
from analytics.events import AsOf, Events
from analytics.jobs.marts import Selection, events, sources
from analytics.lake.writer import update
from analytics.marts.catalogue import MARTS, Sources
from analytics.offsets import Offsets, stable_ends
from analytics.replay import replay
from contracts.lock import load_lock
from tests.integration.analytics.log_writer import (
    PARTITIONS,
    Topics,
    commit,
    create_topics,
    write_raw,
    writer,
)
from tests.integration.analytics.shop import AT, DAY, Seen, placed, read, write_shop


@pytest.fixture(scope="module")
def shop(kafka: str) -> Topics:
    topics = create_topics(kafka)
    write_shop(kafka, topics)
    return topics


def cut(kafka: str, shop: Topics, keeps: Callable[[str, Seen], bool]) -> Topics:
    """Copies the records for which `keeps(topic, record)` is true into fresh topics."""
    fresh = create_topics(kafka)
    with writer(kafka) as producer:
        producer.begin_transaction()
        for source, target in ((shop.orders, fresh.orders), (shop.inventory, fresh.inventory)):
            for number in range(PARTITIONS):
                for seen in read(kafka, source, number, 0):
                    if keeps(source, seen):
                        write_raw(producer, target, seen.key.decode(), seen.value, seen.headers)
        producer.commit_transaction(30)
    return fresh


def instant(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)


def rows(frame: DataFrame) -> list[Any]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def compare(
    spark: SparkSession, kafka: str, as_of: Events, shorter: Topics, *marts: str
) -> dict[str, list[Any]]:
    """Compares these marts of both logs and returns their rows. Each mart is a Spark job."""
    rebuilt = replay(spark, kafka, (shorter.orders, shorter.inventory), kept=True)
    mart_rows: dict[str, list[Any]] = {}
    for name in marts:
        mart_rows[name] = rows(MARTS[name].build(Sources(as_of)))
        assert mart_rows[name] == rows(MARTS[name].build(Sources(rebuilt))), name
    rebuilt.unpersist()
    return mart_rows


@pytest.mark.full
def test_as_it_had_happened_by_then(spark: SparkSession, kafka: str, shop: Topics) -> None:
    until = AT + DAY
    log = replay(spark, kafka, (shop.orders, shop.inventory), kept=True)
    shorter = cut(kafka, shop, lambda _, seen: read_event(seen.value, load_lock()).occurred_at <= until)
    mart_rows = compare(spark, kafka, AsOf(log, instant(until)), shorter, "audit_orders", "stock_ledger")
    states = {row[0]: row[1] for row in mart_rows["audit_orders"]}
    assert states == {"o-1": "shipped", "o-2": "cancelled", "o-3": "rejected", "o-4": "placed"}
    log.unpersist()


@pytest.mark.full
def test_as_the_lake_knew_then_what_had_happened_by_then(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    """Recorded and business time together: what came later, or happened later, is in neither."""
    topics, lake = create_topics(kafka), tmp_path / "lake"
    write_shop(kafka, topics)
    both, until = (topics.orders, topics.inventory), AT + DAY
    recorded = update(spark, kafka, lake, lambda _step: None, both)
    with writer(kafka) as producer:
        commit(producer, topics.orders, [(placed("o-9", "A"), 1)])
    update(spark, kafka, lake, lambda _step: None, both)
    shorter = cut(
        kafka,
        topics,
        lambda _, seen: seen.key != b"o-9" and read_event(seen.value, load_lock()).occurred_at <= until,
    )
    selection = Selection(kafka, lake, moment=instant(until), known_by=recorded.time)
    as_of = sources(spark, events(spark, selection), selection).events
    mart_rows = compare(spark, kafka, as_of, shorter, "audit_orders", "saga_health")
    assert {row[0] for row in mart_rows["audit_orders"]} == {"o-1", "o-2", "o-3", "o-4"}


@pytest.mark.full
def test_as_an_earlier_reading_saw_it(spark: SparkSession, kafka: str, shop: Topics) -> None:
    ends = stable_ends(kafka, (shop.orders, shop.inventory))
    offsets: Offsets = {topic: {n: end // 2 for n, end in parts.items()} for topic, parts in ends.items()}
    log = replay(spark, kafka, (shop.orders, shop.inventory), kept=True)
    shorter = cut(kafka, shop, lambda topic, seen: seen.offset < offsets[topic][seen.partition])
    mart_rows = compare(spark, kafka, log.before(offsets), shorter, "orders", "audit_stock")
    assert 0 < len(mart_rows["orders"]) <= 4
    log.unpersist()
