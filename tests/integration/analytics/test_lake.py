"""The lake has the same rows as the log, each once."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from analytics.delta import METADATA, Location, table
from analytics.envelope import POSITION
from analytics.lake import writer as lake_writer
from analytics.lake.reader import open_lake
from analytics.lake.tables import (
    RAW,
    NoLake,
    NotRecorded,
    compact,
    copy_of,
    fingerprint,
    lake_report,
    last_batch,
)
from analytics.lake.views import connect
from analytics.lake.writer import update
from analytics.marts.catalogue import built
from analytics.replay import Replay, replay
from contracts.lock import load_lock
from contracts.order.events import Line, OrderPlaced, OrderShipped
from tests.integration.analytics.log_writer import Topics, commit, write, write_raw, writer

pytestmark = pytest.mark.long

AT = 1_300_000_000_000_001
V1, V2 = load_lock().ids(OrderPlaced.TYPE)


def placed(number: int) -> OrderPlaced:
    return OrderPlaced(
        f"o-{number}", "Norway", "GBP", AT, (Line("22423", number, 2_550_000),), gross=number * 2_550_000
    )


def shipped(number: int) -> OrderShipped:
    return OrderShipped(f"o-{number}", AT, ("22423",), "post", "r-1")


DAY_MICROS = 86_400_000_000


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


def assert_same(spark: SparkSession, kafka: str, folder: Location) -> None:
    """Compares every frame of the lake with that of the log, and every record's bytes."""
    lake = open_lake(spark, folder)
    log = replay(spark, kafka, ends=lake.ends)
    assert frames(lake) == frames(log)
    assert rows(lake.log.select(*POSITION, "value")) == rows(log.log.select(*POSITION, "value"))


@pytest.fixture
def lake_uri(lake: Path) -> str:
    """The same as a URI, which no code may take for the path of a folder."""
    return lake.as_uri()


def test_the_lake_has_what_the_log_has(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    everything(kafka, topics.orders, range(1, 40))
    ends = update(spark, kafka, lake, no_progress, [topics.orders]).ends
    assert ends == replay(spark, kafka, [topics.orders]).ends
    assert {name: len(records) for name, records in frames(open_lake(spark, lake)).items()} == {
        "events": 2 * 39, "placed": 39, "shipped": 39, "set aside": 1,
    }  # fmt: skip
    assert_same(spark, kafka, lake)


def test_the_tables_are_read_without_a_jvm(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path
) -> None:
    everything(kafka, topics.orders, range(1, 4))
    copy = copy_of(lake, update(spark, kafka, lake, no_progress, [topics.orders]).log)
    placed_orders = DeltaTable(f"{copy}/order_placed").to_pyarrow_table().sort_by("order_id").to_pylist()
    assert [(row["order_id"], row["gross"]) for row in placed_orders] == [
        (f"o-{number}", number * Decimal("2.550000")) for number in (1, 2, 3)
    ]
    assert placed_orders[0]["lines"][0]["unit_price"] == Decimal("2.550000")
    assert placed_orders[0]["occurred_at"] == datetime.fromtimestamp(0, UTC) + timedelta(microseconds=AT)
    records = DeltaTable(f"{copy}/{RAW}").to_pyarrow_table().to_pylist()
    poison = next(row for row in records if row["value"] == b"poison")
    assert (poison["reason"], poison["record"], poison["headers"]) == ("no_envelope", "other", None)
    assert {row["source"] for row in records} == {None, "test"}


def test_only_what_is_new_is_copied(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    everything(kafka, topics.orders, range(1, 20))
    first = update(spark, kafka, lake, no_progress, [topics.orders])
    again = update(spark, kafka, lake, no_progress, [topics.orders])
    assert again == replace(first, number=2, time=again.time)
    assert again.time > first.time
    everything(kafka, topics.orders, range(20, 30))
    second = update(spark, kafka, lake, no_progress, [topics.orders], events_per_batch=20)
    assert second.batch > first.batch + 1
    assert last_batch(copy_of(lake, second.log), RAW) == second.batch
    assert_same(spark, kafka, lake)


@pytest.mark.full
def test_recorded_time_does_not_change(spark: SparkSession, kafka: str, topics: Topics, lake: Path) -> None:
    """An open transaction, which a filter by the records' time would let in later, and a late decision of the rule."""

    def entities(by: datetime) -> set[str]:
        return {row["entity"] for row in open_lake(spark, lake, by).events.collect()}

    with writer(kafka) as producer, writer(kafka) as undecided:
        commit(producer, topics.orders, [(placed(1), 1)])
        undecided.begin_transaction()
        write(undecided, topics.orders, placed(100), 1)
        undecided.flush()
        first = update(spark, kafka, lake, no_progress, [topics.orders])
        assert entities(first.time) == {"o-1"}
        undecided.commit_transaction(30)
        commit(producer, topics.orders, [(placed(1), 1)])  # a forked stream: `o-1` stops
    with pytest.raises(NotRecorded, match="still to come"):
        open_lake(spark, lake, datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(NotRecorded, match="update"):
        entities(datetime.now(UTC))
    second = update(spark, kafka, lake, no_progress, [topics.orders])
    assert entities(first.time) == {"o-1"}
    assert entities(second.time - timedelta(microseconds=1)) == {"o-1"}
    assert entities(second.time) == {"o-1", "o-100"}
    assert [row["reason"] for row in open_lake(spark, lake).set_aside.collect()] == ["forked"]
    assert open_lake(spark, lake, first.time).set_aside.count() == 0
    with pytest.raises(NotRecorded, match="since"):
        entities(first.time - timedelta(microseconds=1))
    compact(lake)
    assert entities(first.time) == {"o-1"}
    assert_same(spark, kafka, lake)


@pytest.mark.full
def test_compaction_changes_files_and_nothing_else(
    spark: SparkSession, kafka: str, topics: Topics, lake_uri: str
) -> None:
    everything(kafka, topics.orders, range(1, 40))
    copy = copy_of(
        lake_uri, update(spark, kafka, lake_uri, no_progress, [topics.orders], events_per_batch=60).log
    )
    before = open_lake(spark, lake_uri)
    expected, files = rows(before.events), table_files(copy, "order_placed")
    compact(lake_uri)
    assert table_files(copy, "order_placed") == 1 < files
    assert rows(open_lake(spark, lake_uri).events) == rows(before.events) == expected
    everything(kafka, topics.orders, range(40, 50))
    update(spark, kafka, lake_uri, no_progress, [topics.orders])
    assert_same(spark, kafka, lake_uri)


def table_files(copy: str, name: str) -> int:
    delta = table(copy, name)
    return len(delta.file_uris()) if delta else 0


@pytest.mark.full
def test_after_a_change_of_the_contracts_everything_is_decoded_again(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(kafka, topics.orders, range(1, 10))
    with monkeypatch.context() as former:
        former.setattr(lake_writer, "fingerprint", lambda _: "former")
        # A build that did not know the newest version: its records are unreadable, so their keys stop.
        every = load_lock().ids
        former.setattr(type(load_lock()), "ids", lambda _, name: every(name)[:1])
        update(spark, kafka, lake, no_progress, [topics.orders])
    with pytest.raises(NoLake, match="lake update"):
        open_lake(spark, lake)
    assert update(spark, kafka, lake, no_progress, [topics.orders]).contracts == fingerprint(load_lock())
    assert_same(spark, kafka, lake)


@pytest.mark.full
def test_two_writers_append_a_batch_once(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one runs from its first to its last step after this one has looked what to copy."""
    everything(kafka, topics.orders, range(1, 10))

    def looks_too_early(folder: Path, name: str) -> int:
        batch = last_batch(folder, name)
        monkeypatch.undo()
        everything(kafka, topics.orders, range(10, 12))
        update(spark, kafka, lake, no_progress, [topics.orders])
        return batch

    monkeypatch.setattr("analytics.lake.writer.last_batch", looks_too_early)
    update(spark, kafka, lake, no_progress, [topics.orders])
    update(spark, kafka, lake, no_progress, [topics.orders])
    assert_same(spark, kafka, lake)


def test_the_lake_reports_how_far_it_is_complete(
    spark: SparkSession, kafka: str, topics: Topics, lake_uri: str
) -> None:
    everything(kafka, topics.orders, range(1, 10))
    update(spark, kafka, lake_uri, no_progress, [topics.orders])
    report = lake_report(lake_uri)
    for number, end in replay(spark, kafka, [topics.orders]).ends[topics.orders].items():
        assert f"complete to {topics.orders}/{number}/{end}" in report
    assert " 3 daybook.order.OrderPlaced version 1" in report
    assert " 6 daybook.order.OrderPlaced version 2" in report
    assert " 1 without a schema id" in report
    assert "the same as now" in report


def test_a_missing_lake_is_reported(spark: SparkSession, lake: Path) -> None:
    with pytest.raises(NoLake, match="no lake in"):
        open_lake(spark, lake)


def test_sql_sees_what_counts_as_of_the_last_commit(
    spark: SparkSession, kafka: str, topics: Topics, lake_uri: str, tmp_path: Path
) -> None:
    later = replace(shipped(1), occurred_at=AT + 2 * DAY_MICROS)
    with writer(kafka) as producer:
        commit(producer, topics.orders, [(placed(1), 1), (later, 2), (placed(2), 1)])
        commit(producer, topics.orders, [(placed(2), 1), (shipped(2), 2)])  # a forked stream: `o-2` stops
    update(spark, kafka, lake_uri, no_progress, [topics.orders])
    rows = pa.table({"order_id": ["o-1"], "gross": [Decimal("2.550000")]})
    metadata = CommitProperties(custom_metadata={METADATA: '{"mart": "orders"}'})
    write_deltalake(tmp_path / "orders", rows, commit_properties=metadata)
    write_deltalake(tmp_path / "guests", rows)  # somebody else's table, with the name of a mart
    assert [*built(tmp_path)] == ["orders"]
    (tmp_path / "articles.csv").write_text('sku,description\n22423,"REGENCY CAKESTAND, 3 TIER"\n')
    connection = connect(lake_uri, built(tmp_path), tmp_path / "articles.csv")
    assert connection.sql("FROM articles").fetchall() == [("22423", "REGENCY CAKESTAND, 3 TIER")]
    assert connection.sql("SELECT order_id, gross FROM order_placed ORDER BY 1").fetchall() == [
        ("o-1", Decimal("2.550000")),
        ("o-2", Decimal("5.100000")),
    ]
    assert connection.sql("SELECT order_id FROM order_shipped").fetchall() == [("o-1",)]
    assert connection.sql("SELECT order_id, gross FROM orders").fetchall() == [("o-1", Decimal("2.550000"))]
    assert {"orders", "order_placed", "calendar", "events_raw", "commits"} <= {
        name for (name,) in connection.sql("SHOW TABLES").fetchall()
    }
    days = [(date(2011, 3, 13), "Sunday"), (date(2011, 3, 14), "Monday"), (date(2011, 3, 15), "Tuesday")]
    assert connection.sql("SELECT day, weekday FROM calendar").fetchall() == days, "those of every event"
    assert connection.sql("SELECT count(*) FROM events_raw").fetchall() == [(5,)]
    assert connection.sql("SELECT number FROM commits").fetchall() == [(1,)]
