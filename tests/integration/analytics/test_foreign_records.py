"""Spark's replay and the audit of a log with all ten kinds of foreign record, before and after decisions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analytics.audit import AuditSources, audit
from analytics.evidence.report import Verdict
from analytics.lake.reader import open_lake
from analytics.lake.writer import update
from analytics.replay import Replay, replay
from contracts.inventory.events import StockReceived
from infra.log.topics import catalogue
from infra.log.topics import create_topics as create_catalogue_topics
from services.kernel.log.control import JOURNAL
from services.kernel.log.rule import Journal, Reading, Step
from tests.contract.log_rule_cases import LogRecord
from tests.foreign_records import EVENTS, judge, planted, write_log
from tests.integration.analytics.log_writer import PARTITIONS, Topics, create_topics
from tests.integration.analytics.shop import project, write_shop
from tests.integration.analytics.test_audit import change, pretend_read

PLANTED = planted()
STOPPED = {plant.key for plant in PLANTED if plant.stops}


def counted(log: Iterable[LogRecord], topic: str) -> list[LogRecord]:
    """The records that count before any decision, by the services' rule."""
    reading = Reading(topic, 0, PARTITIONS, Journal(), lambda value: len(value or b"") > 10)
    return [record for record in log if reading.take(record.key, record.value, record.headers) is Step.NEXT]


def read_to(sources: AuditSources, twin: Topics) -> None:
    """Fills the read models from `twin`, a log without the foreign records."""
    project(sources.kafka, twin, sources.database_url)
    for mine, its in ((sources.orders, twin.orders), (sources.inventory, twin.inventory)):
        change(sources, f"UPDATE position SET topic = '{mine}' WHERE topic = '{its}'")
    pretend_read(sources)


def receipts(log: Replay) -> dict[str, int]:
    """The number of counted events of each planted key."""
    rows = log.of(StockReceived.TYPE).where("entity LIKE 'planted-%'").groupBy("entity").count().collect()
    return {row["entity"]: row["count"] for row in rows}


def aside(log: Replay) -> list[tuple[Any, ...]]:
    """The records that do not count, in the log's order."""
    rows = log.set_aside.orderBy("topic", "partition", "offset").collect()
    return [(row["topic"], row["partition"], row["offset"], row["reason"]) for row in rows]


def audited(spark: SparkSession, sources: AuditSources) -> Verdict:
    return audit(spark, sources, 30, lambda _: None)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_ten_kinds_at_once_then_decided(
    spark: SparkSession, kafka: str, fresh_database: str, tmp_path: Path
) -> None:
    create_catalogue_topics(kafka, {JOURNAL: catalogue()[JOURNAL]})
    topics, twin = create_topics(kafka), create_topics(kafka)
    sources = AuditSources(kafka, fresh_database, topics.orders, topics.inventory)
    everything = [record for plant in PLANTED for record in plant.log]
    for some, records in ((topics, everything), (twin, counted(everything, twin.inventory))):
        write_shop(kafka, some)
        write_log(kafka, records, some.inventory)
    read_to(sources, twin)

    sound = {plant.key: EVENTS for plant in PLANTED if not plant.stops}
    before = {plant.key: len(counted(plant.log, twin.inventory)) for plant in PLANTED}
    both, lake = (topics.orders, topics.inventory), tmp_path / "lake"
    update(spark, kafka, lake, print, both)
    log = replay(spark, kafka, both)
    assert receipts(log) == before and sound.items() <= before.items()
    assert aside(open_lake(spark, lake)) == aside(log)
    verdict = audited(spark, sources)
    assert (verdict.word, verdict.differences, verdict.parked) == ("stopped", [], 0)
    assert {key for _, key, _ in verdict.aside.stopped} == STOPPED
    assert (verdict.aside.foreign, verdict.aside.decided) == (len(PLANTED) - len(STOPPED), 0)

    judge(kafka, [plant.record for plant in PLANTED if plant.stops], topic=topics.inventory)
    again = create_topics(kafka)
    write_shop(kafka, again)
    good = [record for plant in PLANTED for record in plant.log if record is not plant.record]
    write_log(kafka, good, again.inventory)
    tables = (
        "orders.orders, orders.content, stock.stock, sales_daily.sales_daily, sales_daily.applied, position"
    )
    change(sources, f"TRUNCATE {tables}")
    read_to(sources, again)
    update(spark, kafka, lake, print, both)
    for read in (replay(spark, kafka, both), open_lake(spark, lake)):
        assert receipts(read) == {plant.key: EVENTS for plant in PLANTED}
        assert len(aside(read)) == len(PLANTED)
    verdict = audited(spark, sources)
    assert verdict.identical and verdict.aside.stopped == []
    assert (verdict.aside.foreign, verdict.aside.decided) == (len(PLANTED), len(STOPPED))
