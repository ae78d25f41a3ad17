"""The replay on a real broker: aborts, open transactions, two schema versions, poison, an active writer."""

import threading

import pytest
from pyspark.sql import SparkSession

from analytics.replay import replay
from contracts.lock import load_lock
from contracts.order.events import Charge, Line, OrderPlaced
from tests.integration.analytics.log_writer import Topics, commit, framed, headers, write, write_raw, writer

AT = 1_300_000_000_000_001
V1, V2 = load_lock().ids(OrderPlaced.TYPE)


def placed(number: int, charges: tuple[Charge, ...] = ()) -> OrderPlaced:
    gross = 5_100_000 + sum(charge.amount for charge in charges)
    return OrderPlaced(
        f"o-{number}", "Norway", "GBP", AT, (Line("22423", 2, 2_550_000),), charges=charges, gross=gross
    )


def test_both_versions_of_a_schema_give_the_same_row(spark: SparkSession, kafka: str, topics: Topics) -> None:
    with writer(kafka) as producer:
        producer.begin_transaction()
        write(producer, topics.orders, placed(1), 1, schema_id=V1)
        write(producer, topics.orders, placed(2), 1, schema_id=V2)
        producer.commit_transaction(30)
    typed = replay(spark, kafka, [topics.orders]).of(OrderPlaced.TYPE).orderBy("entity").collect()
    assert [row["schema_id"] for row in typed] == [V1, V2]
    older, newer = (row.asDict(recursive=True) for row in typed)
    fields = (
        "country",
        "currency",
        "occurred_at",
        "lines",
        "charges",
        "gross",
        "settle_by",
        "customer_id",
        "epoch",
    )
    assert [older[name] for name in fields] == [newer[name] for name in fields]
    assert older["gross"] == 5_100_000
    assert older["recorded_at"].microsecond == 1
    assert (older["id"], older["version"], older["correlation_id"], older["epoch"]) == ("o-1-1", 1, "corr", 1)


def test_only_what_is_committed_is_read(spark: SparkSession, kafka: str, topics: Topics) -> None:
    with writer(kafka) as producer:
        for number in range(50):
            producer.begin_transaction()
            write(producer, topics.orders, placed(number), 1)
            if number % 5 == 0:
                producer.flush()
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    log = replay(spark, kafka, [topics.orders])
    assert {row["entity"] for row in log.events.select("entity").collect()} == {
        f"o-{number}" for number in range(50) if number % 5
    }
    assert log.set_aside.count() == 0


def test_an_open_transaction_lies_beyond_the_end(spark: SparkSession, kafka: str, topics: Topics) -> None:
    with writer(kafka) as producer, writer(kafka) as undecided:
        commit(producer, topics.orders, [(placed(number), 1) for number in range(10)])
        undecided.begin_transaction()
        write(undecided, topics.orders, placed(100), 1)
        undecided.flush()
        commit(producer, topics.orders, [(placed(number), 1) for number in range(10, 20)])
        before = replay(spark, kafka, [topics.orders])
        open_key_ends = before.ends[topics.orders]
        seen = {row["entity"] for row in before.events.collect()}
        undecided.commit_transaction(30)
    after = replay(spark, kafka, [topics.orders])
    assert "o-100" not in seen
    assert {f"o-{number}" for number in range(10)} <= seen
    assert after.events.count() == 21
    assert any(after.ends[topics.orders][number] > end for number, end in open_key_ends.items())
    assert before.events.count() == len(seen), "the ends were fixed before the commit"


def test_aborted_events_and_markers_alone_are_nothing(
    spark: SparkSession, kafka: str, topics: Topics
) -> None:
    with writer(kafka) as producer, writer(kafka) as undecided:
        producer.begin_transaction()
        for number in range(10):
            write(producer, topics.orders, placed(number), 1)
        producer.flush()
        producer.abort_transaction(30)
        undecided.begin_transaction()
        write(undecided, topics.orders, placed(1), 1)
        undecided.flush()
        log = replay(spark, kafka, [topics.orders])
        assert sum(log.ends[topics.orders].values()) > 10
        assert log.log.count() == 0
        undecided.abort_transaction(30)


def test_what_does_not_count_is_set_aside_with_position_and_reason(
    spark: SparkSession, kafka: str, topics: Topics
) -> None:
    """The shared table of cases proves the reasons; this test checks them on a real topic."""
    good = framed(V2, {**vars(placed(1)), "lines": [], "charges": []})
    poison = {
        "no_envelope": (good, None),
        "unreadable": (good[:9], headers(OrderPlaced.TYPE, "o-1", 2)),
        "waiting": (good, headers(OrderPlaced.TYPE, "o-1", 2)),
    }
    with writer(kafka) as producer:
        producer.begin_transaction()
        write(producer, topics.orders, placed(1), 1)
        for value, its_headers in poison.values():
            write_raw(producer, topics.orders, "o-1", value, its_headers)
        write(producer, topics.orders, placed(2), 1)
        producer.commit_transaction(30)
    log = replay(spark, kafka, [topics.orders])
    aside = log.set_aside.orderBy("offset").collect()
    assert [(row["offset"], row["reason"]) for row in aside] == list(enumerate(poison, start=1))
    assert sorted(row["entity"] for row in log.of(OrderPlaced.TYPE).collect()) == ["o-1", "o-2"]


@pytest.mark.full
def test_the_ends_are_fixed_while_a_writer_is_active(spark: SparkSession, kafka: str, topics: Topics) -> None:
    stop, started = threading.Event(), threading.Event()

    def keep_writing() -> None:
        with writer(kafka) as producer:
            number = 0
            while not stop.is_set():
                commit(producer, topics.orders, [(placed(number + step), 1) for step in range(20)])
                number += 20
                started.set()

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        assert started.wait(30)
        log = replay(spark, kafka, [topics.orders])
        counts = {log.events.count() for _ in range(3)}
        later = replay(spark, kafka, [topics.orders])
    finally:
        stop.set()
        thread.join(30)
    assert len(counts) == 1
    assert counts.pop() > 0
    assert sum(later.ends[topics.orders].values()) > sum(log.ends[topics.orders].values())
