"""Two hundred thousand events on a real broker: aborts, two schema versions, poison and an active writer."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from analytics.envelope import ENVELOPE
from analytics.lake.reader import open_lake
from analytics.lake.tables import RAW, copy_of
from analytics.lake.writer import update
from analytics.replay import Replay, replay
from contracts.lock import load_lock
from contracts.order.events import Charge, Line, OrderConfirmed, OrderPlaced
from tests.integration.analytics.log_writer import commit, create_topics, framed, headers, write_raw, writer

AT = 1_300_000_000_000_001
V1, V2 = load_lock().ids(OrderPlaced.TYPE)
LINE, POSTAGE = 2_550_000, 1_000_000
TRANSACTIONS, EVENTS, ABORTED = 100, 2_000, 20
COMMITTED = (TRANSACTIONS - ABORTED) * EVENTS

CONFIRMED = OrderConfirmed("o", AT, ("22423",), "Norway", "GBP", 2, 2 * LINE)
OLDER = OrderPlaced("o", "Norway", "GBP", AT, (Line("22423", 2, LINE),))
NEWER = OrderPlaced(
    "o", "Norway", "GBP", AT, OLDER.lines, charges=(Charge("POST", POSTAGE),), gross=2 * LINE + POSTAGE
)
# Encoded once: what is tested is how they are read. A quarter is of version 1, a quarter of version 2.
CONFIRMATION = (OrderConfirmed.TYPE, framed(load_lock().ids(OrderConfirmed.TYPE)[-1], asdict(CONFIRMED)))
VALUES = (
    (OrderPlaced.TYPE, framed(V1, asdict(OLDER))),
    (OrderPlaced.TYPE, framed(V2, asdict(NEWER))),
    CONFIRMATION,
    CONFIRMATION,
)
# Each transaction carries one of each.
POISON = {
    "undecodable": VALUES[0][1][:9],
    "unknown schema id": b"\x00\x7f\xff\xff\xff" + VALUES[0][1][5:],
    "not framed": b"{}",
}


def fill(kafka: str, topic: str) -> None:
    with writer(kafka) as producer:
        for transaction in range(TRANSACTIONS):
            producer.begin_transaction()
            for number in range(transaction * EVENTS, (transaction + 1) * EVENTS):
                type_name, value = VALUES[number % len(VALUES)]
                entity = f"o-{number}"
                write_raw(producer, topic, entity, value, headers(type_name, entity, 1))
            for value in POISON.values():
                write_raw(producer, topic, "poison", value, headers(OrderPlaced.TYPE, "poison", 1))
            if transaction % (TRANSACTIONS // ABORTED) == 0:
                producer.flush()
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)


@contextmanager
def keep_writing(kafka: str, topic: str) -> Iterator[None]:
    """Writes confirmations of one order, version by version, until stopped."""
    stop, started = threading.Event(), threading.Event()

    def run() -> None:
        with writer(kafka) as producer:
            version = 1
            while not stop.wait(0.02):
                events = [(CONFIRMED, version + step) for step in range(10)]
                commit(producer, topic, events)
                version += len(events)
                started.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        stop.set()
        thread.join(30)


def numbers_of(log: Replay) -> dict[str, Any]:
    """The counts to compare. The digest covers every column of every event in any order."""
    digest = F.sum(F.xxhash64(*ENVELOPE).cast("decimal(38,0)"))
    bulk = F.col("entity").startswith("o-")
    events = log.events.agg(
        F.count_if(bulk), F.count_distinct(F.when(bulk, F.col("entity"))), F.count_if(~bulk), F.max("version")
    )
    placed = log.of(OrderPlaced.TYPE).groupBy("schema_id").agg(F.count("*"), F.sum("gross"))
    confirmed = log.of(OrderConfirmed.TYPE).where(bulk).agg(F.count("*"), F.sum("gross"))
    aside = log.set_aside.groupBy("reason").count()
    return {
        "digest": tuple(log.events.agg(digest).first() or ()),
        "events": tuple(events.first() or ()),
        "placed": {row[0]: tuple(row[1:]) for row in placed.collect()},
        "confirmed": tuple(confirmed.first() or ()),
        "set aside": {row[0]: row[1] for row in aside.collect()},
    }


@pytest.mark.full
@pytest.mark.timeout(600)
def test_every_committed_event_is_read_once_and_the_lake_holds_the_same(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topic = create_topics(kafka).orders
    fill(kafka, topic)
    with keep_writing(kafka, topic):
        lake = update(spark, kafka, tmp_path / "lake", print, [topic], events_per_batch=150_000)
        log = replay(spark, kafka, ends=lake.ends, kept=True)
        from_log, records = numbers_of(log), log.log.count()
        log.unpersist()
    from_lake = numbers_of(open_lake(spark, tmp_path / "lake"))
    assert from_lake == from_log
    quarter = COMMITTED // 4
    assert from_log["placed"] == {
        V1: (quarter, quarter * 2 * LINE),
        V2: (quarter, quarter * (2 * LINE + POSTAGE)),
    }
    assert from_log["confirmed"] == (2 * quarter, 2 * quarter * 2 * LINE)
    poison = (TRANSACTIONS - ABORTED) * len(POISON)
    assert from_log["set aside"] == {"unreadable": 1, "waiting": poison - 1}
    in_bulk, different, meanwhile, last_version = from_log["events"]
    assert in_bulk == different == COMMITTED
    assert meanwhile == last_version > 0, "the active writer's versions have no gap"
    assert (
        DeltaTable(f"{copy_of(tmp_path / 'lake', lake.log)}/{RAW}").to_pyarrow_dataset().count_rows()
        == records
    )
