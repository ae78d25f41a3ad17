"""Spark's replay and the audit of a log with all ten kinds of foreign record; then somebody decides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analytics.audit import AuditSources, audit
from analytics.evidence.verdict import Verdict
from analytics.lake.log_copy import update
from analytics.lake.reader import open_lake
from analytics.replay import Replay, replay
from contracts.inventory.events import StockReceived
from infra.log.topics import catalogue
from infra.log.topics import create_topics as create_catalogue_topics
from services.kernel.log.journal import TOPIC as JOURNAL
from services.kernel.log.rule import Journal, Reading, Step
from tests.contract.log_rule_cases import LogRecord
from tests.foreign_records import EVENTS, judge, planted, write_log
from tests.integration.analytics.log_writer import PARTITIONS, Topics, create_topics
from tests.integration.analytics.shop import project, write_shop
from tests.integration.analytics.test_audit import change, pretend_read

PLANTED = planted()
STOPPED = {each.key for each in PLANTED if each.stops}


def counted(log: Iterable[LogRecord], topic: str) -> list[LogRecord]:
    """The records that count before somebody decides, by the services' rule."""
    reading = Reading(topic, 0, PARTITIONS, Journal(), lambda value: len(value or b"") > 10)
    return [each for each in log if reading.take(each.key, each.value, each.headers) is Step.NEXT]


def read_to(sources: AuditSources, twin: Topics) -> None:
    """The read models' rows are those of `twin`, a log without what is foreign."""
    project(sources.kafka, twin, sources.database_url)
    for mine, its in ((sources.orders, twin.orders), (sources.inventory, twin.inventory)):
        change(sources, f"UPDATE position SET topic = '{mine}' WHERE topic = '{its}'")
    pretend_read(sources)


def receipts(log: Replay) -> dict[str, int]:
    """How many events of each planted key count."""
    rows = log.of(StockReceived.TYPE).where("entity LIKE 'planted-%'").groupBy("entity").count().collect()
    return {row["entity"]: row["count"] for row in rows}


def aside(log: Replay) -> list[tuple[Any, ...]]:
    """What does not count, in the log's order."""
    rows = log.set_aside.orderBy("topic", "partition", "offset").collect()
    return [(row["topic"], row["partition"], row["offset"], row["reason"]) for row in rows]


def audited(spark: SparkSession, sources: AuditSources) -> Verdict:
    return audit(spark, sources, 30, lambda _: None)


@pytest.mark.timeout(600)
def test_ten_kinds_at_once_then_decided(
    spark: SparkSession, kafka: str, fresh_database: str, tmp_path: Path
) -> None:
    create_catalogue_topics(kafka, {JOURNAL: catalogue()[JOURNAL]})
    topics, twin = create_topics(kafka), create_topics(kafka)
    sources = AuditSources(kafka, fresh_database, topics.orders, topics.inventory)
    everything = [record for each in PLANTED for record in each.log]
    for some, records in ((topics, everything), (twin, counted(everything, twin.inventory))):
        write_shop(kafka, some)
        write_log(kafka, records, some.inventory)
    read_to(sources, twin)

    sound = {each.key: EVENTS for each in PLANTED if not each.stops}
    before = {each.key: len(counted(each.log, twin.inventory)) for each in PLANTED}
    both, lake = (topics.orders, topics.inventory), tmp_path / "lake"
    update(spark, kafka, lake, print, both)
    log = replay(spark, kafka, both)
    assert receipts(log) == before and sound.items() <= before.items()
    assert aside(open_lake(spark, lake)) == aside(log)
    verdict = audited(spark, sources)
    assert (verdict.word, verdict.differences, verdict.parked) == ("stopped", [], 0)
    assert {key for _, key, _ in verdict.aside.stopped} == STOPPED
    assert (verdict.aside.foreign, verdict.aside.decided) == (len(PLANTED) - len(STOPPED), 0)

    judge(kafka, [each.record for each in PLANTED if each.stops], topic=topics.inventory)
    again = create_topics(kafka)
    write_shop(kafka, again)
    good = [each for planted in PLANTED for each in planted.log if each is not planted.record]
    write_log(kafka, good, again.inventory)
    tables = (
        "orders.orders, orders.content, stock.stock, sales_daily.sales_daily, sales_daily.applied, position"
    )
    change(sources, f"TRUNCATE {tables}")
    read_to(sources, again)
    update(spark, kafka, lake, print, both)
    for log in (replay(spark, kafka, both), open_lake(spark, lake)):
        assert receipts(log) == {each.key: EVENTS for each in PLANTED}
        assert len(aside(log)) == len(PLANTED)
    verdict = audited(spark, sources)
    assert verdict.identical and verdict.aside.stopped == []
    assert (verdict.aside.foreign, verdict.aside.decided) == (len(PLANTED), len(STOPPED))
