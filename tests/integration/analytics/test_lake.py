"""The lake has the same rows as the log, each once."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from analytics.envelope import POSITION
from analytics.lake.manifest import LakeDamaged, NoLake, lake_report, part_folder
from analytics.lake.reader import open_lake
from analytics.lake.writer import LakeBusy, LakeLogReplaced, compact, only_writer, rebuild, update
from analytics.offsets import AheadOfLog
from analytics.replay import Replay, replay
from contracts.lock import load_lock
from contracts.order.events import Line, OrderPlaced, OrderShipped
from tests.integration.analytics.log_writer import Topics, commit, create_topics, write, write_raw, writer

AT = 1_300_000_000_000_001
V1, V2 = load_lock().ids(OrderPlaced.TYPE)


def placed(number: int) -> OrderPlaced:
    return OrderPlaced(
        f"o-{number}", "Norway", "GBP", AT, (Line("22423", number, 2_550_000),), gross=number * 2_550_000
    )


def shipped(number: int) -> OrderShipped:
    return OrderShipped(f"o-{number}", AT, ("22423",), "post", "r-1")


@pytest.fixture
def topics(kafka: str) -> Topics:
    return create_topics(kafka)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def no_progress(_: str) -> None:
    """Ignores progress."""


def everything(kafka: str, topic: str, numbers: range) -> None:
    """Writes committed and aborted events, two schema versions, poison, and markers at the end."""
    with writer(kafka) as producer:
        producer.begin_transaction()
        for number in numbers:
            write(producer, topic, placed(number), 1, schema_id=V1 if number % 3 == 0 else V2)
        write_raw(producer, topic, f"o-{numbers[0]}", b"poison", None)
        producer.commit_transaction(30)
        producer.begin_transaction()
        for number in numbers:
            write(producer, topic, placed(number), 9)
        producer.flush()
        producer.abort_transaction(30)
        commit(producer, topic, [(shipped(number), 2) for number in numbers])


def rows(frame: DataFrame) -> list[Any]:
    """All rows, in the log's order."""
    collected = frame.select(
        "topic", "partition", "offset", *sorted({*frame.columns} - {*POSITION})
    ).collect()
    return sorted((tuple(row) for row in collected), key=lambda row: row[:3])


def frames(log: Replay) -> Mapping[str, list[Any]]:
    return {
        "events": rows(log.events),
        "placed": rows(log.of(OrderPlaced.TYPE)),
        "shipped": rows(log.of(OrderShipped.TYPE)),
        "set aside": rows(log.set_aside),
    }


def assert_same(spark: SparkSession, kafka: str, folder: Path) -> None:
    """Compares every record with every column; the other frames are derived from this one."""
    lake = open_lake(spark, folder)
    assert rows(lake.log) == rows(replay(spark, kafka, ends=lake.ends).log)


def test_the_lake_has_what_the_log_has(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    everything(kafka, topics.orders, range(1, 40))
    ends = update(spark, kafka, lake, no_progress, [topics.orders]).ends
    log = replay(spark, kafka, [topics.orders])
    assert ends == log.ends
    from_log, from_lake = frames(log), frames(open_lake(spark, lake))
    assert from_lake == from_log
    assert {name: len(records) for name, records in from_lake.items()} == {
        "events": 2 * 39, "placed": 39, "shipped": 39, "set aside": 1,
    }  # fmt: skip
    assert_same(spark, kafka, lake)
    assert sorted(folder.name for folder in lake.glob("parts/*/*/*")) == [
        "day=2011-03-13", "day=__HIVE_DEFAULT_PARTITION__",
    ]  # fmt: skip


def test_only_what_is_new_is_copied(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    everything(kafka, topics.orders, range(1, 20))
    first = update(spark, kafka, lake, no_progress, [topics.orders])
    again = update(spark, kafka, lake, no_progress, [topics.orders])
    assert again.parts == first.parts
    everything(kafka, topics.orders, range(20, 30))
    second = update(spark, kafka, lake, no_progress, [topics.orders], events_per_batch=20)
    assert second.parts[: len(first.parts)] == first.parts
    assert len(second.parts) > len(first.parts) + 1
    assert sum(part.rows for part in second.parts) == 2 * 29 + 2
    assert_same(spark, kafka, lake)


def test_an_open_transaction_comes_with_a_later_update(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path
) -> None:
    with writer(kafka) as producer, writer(kafka) as undecided:
        commit(producer, topics.orders, [(placed(1), 1)])
        undecided.begin_transaction()
        write(undecided, topics.orders, placed(100), 1)
        undecided.flush()
        update(spark, kafka, lake, no_progress, [topics.orders])
        assert {row["entity"] for row in open_lake(spark, lake).events.collect()} == {"o-1"}
        undecided.commit_transaction(30)
    update(spark, kafka, lake, no_progress, [topics.orders])
    assert [row["entity"] for row in open_lake(spark, lake).events.orderBy("entity").collect()] == [
        "o-1",
        "o-100",
    ]


def test_compaction_changes_files_and_nothing_else(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path
) -> None:
    everything(kafka, topics.orders, range(1, 40))
    update(spark, kafka, lake, no_progress, [topics.orders], events_per_batch=40)
    before = open_lake(spark, lake)
    expected, files = rows(before.log), len(list(lake.rglob("*.parquet")))
    compacted = compact(spark, lake)
    assert len(compacted.parts) == 1
    assert len(list(part_folder(lake, compacted.parts[0].name).rglob("*.parquet"))) == 2 < files
    assert rows(open_lake(spark, lake).log) == expected
    assert rows(before.log) == expected, "a reader that has started is not disturbed"
    everything(kafka, topics.orders, range(40, 50))
    update(spark, kafka, lake, no_progress, [topics.orders])
    assert_same(spark, kafka, lake)
    assert compact(spark, lake).retired != compacted.retired


def test_a_rebuilt_lake_is_the_same(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    everything(kafka, topics.orders, range(1, 20))
    first = update(spark, kafka, lake, no_progress, [topics.orders], events_per_batch=40)
    again = rebuild(spark, kafka, lake, no_progress, [topics.orders])
    assert len(again.parts) == 1 < len(first.parts)
    assert again.schemas == first.schemas
    assert again.generation > first.generation
    assert_same(spark, kafka, lake)
    assert update(spark, kafka, lake, no_progress, [topics.orders]).parts == again.parts


def test_a_lost_checkpoint_costs_nothing(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    everything(kafka, topics.orders, range(1, 20))
    first = update(spark, kafka, lake, no_progress, [topics.orders])
    shutil.rmtree(lake / first.checkpoint)
    everything(kafka, topics.orders, range(20, 30))
    assert len(update(spark, kafka, lake, no_progress, [topics.orders]).parts) == 2
    assert_same(spark, kafka, lake)


def test_the_lake_reports_how_far_it_is_complete(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path
) -> None:
    everything(kafka, topics.orders, range(1, 10))
    done = update(spark, kafka, lake, no_progress, [topics.orders])
    report = lake_report(done, lake)
    for number, end in replay(spark, kafka, [topics.orders]).ends[topics.orders].items():
        assert f"complete to {topics.orders}/{number}/{end}" in report
    assert " 3 daybook.order.OrderPlaced version 1" in report
    assert " 6 daybook.order.OrderPlaced version 2" in report
    assert " 1 without a schema id" in report
    assert "the same as now" in report


def test_a_lake_of_another_log_is_refused(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path
) -> None:
    everything(kafka, topics.orders, range(1, 10))
    update(spark, kafka, lake, no_progress, [topics.orders])
    with pytest.raises(LakeLogReplaced, match="rebuild"):
        update(spark, kafka, lake, no_progress, [create_topics(kafka).orders])
    manifest = json.loads((lake / "manifest.json").read_text())
    manifest["ends"][topics.orders]["0"] += 1000
    (lake / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(AheadOfLog, match="the lake is at"):
        update(spark, kafka, lake, no_progress, [topics.orders])


def test_a_missing_or_damaged_lake_is_reported(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path
) -> None:
    with pytest.raises(NoLake):
        open_lake(spark, lake)
    everything(kafka, topics.orders, range(1, 10))
    update(spark, kafka, lake, no_progress, [topics.orders])
    next(lake.rglob("*.parquet")).unlink()
    with pytest.raises(LakeDamaged, match="rebuild"):
        open_lake(spark, lake)


def test_a_second_writer_is_refused(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    with only_writer(lake), pytest.raises(LakeBusy):
        update(spark, kafka, lake, no_progress, [topics.orders])
