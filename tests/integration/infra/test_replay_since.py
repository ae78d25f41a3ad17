"""`daybook replay --since`: a group begins again at a moment, and the price that was shown is what comes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from infra.base.errors import NotDone
from infra.cli.main import command as daybook
from infra.cli.replay import moment_of
from infra.log.positions import Rewind, plan, rewind
from services.kernel.log.transactions import transactional_producer
from services.kernel.record.envelope import format_time


@cache
def first() -> int:
    """The time of record 0, in ms; each next one is a second later.

    Ahead of the clock of these tests, not of their import: markers bear the clock's time, and one that is
    later than the records would be found in their stead.
    """
    return (int(time.time()) + 600) * 1000


@pytest.fixture
def topic(kafka: str) -> str:
    """Records 0 to 39, in two partitions; aborted ones between them."""
    name = f"replay-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})  # its requests end with it
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = transactional_producer(kafka, f"test-{name}", 10_000)
    producer.init_transactions(60)
    for start in range(0, 40, 10):
        for committed in (False, True):
            producer.begin_transaction()
            for number in range(start, start + 10):
                at = first() + (number if committed else start) * 1000
                producer.produce(name, str(number), str(number), partition=number % 2, timestamp=at)
            producer.flush(30)
            if committed:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
    return name


@pytest.fixture
def group() -> str:
    return f"billing-{uuid.uuid4().hex[:8]}"


def reader(kafka: str, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    return consumer


def read(kafka: str, group: str, topic: str, until: int = 40) -> list[int]:
    """All that the group gets now, in order of number; it commits what lies before record `until`."""
    consumer, numbers, ended = reader(kafka, group, topic), [], set[Any]()
    first_left: dict[int, int] = {}
    try:
        while len(ended) < 2:
            for record in consumer.consume(100, 0.2):
                if (error := record.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    ended.add(record.partition())
                    first_left.setdefault(record.partition(), record.offset())
                    continue
                numbers.append(int(record.value()))
                if numbers[-1] >= until:
                    first_left.setdefault(record.partition(), record.offset())
        consumer.commit(offsets=[TopicPartition(topic, *at) for at in first_left.items()], asynchronous=False)
    finally:
        consumer.close()
    return sorted(numbers)


def written(number: int) -> str:
    return format_time((first() + number * 1000) * 1000)


def run(kafka: str, *arguments: str, typed: str = "") -> Any:
    return CliRunner().invoke(
        daybook(), ["replay", *arguments, "--kafka", kafka], input=typed, env={"COLUMNS": "200"}
    )


def test_what_was_announced_comes_again_and_nothing_is_left_out(kafka: str, group: str, topic: str) -> None:
    assert read(kafka, group, topic, until=30) == list(range(40))
    since = ("--group", group, "--topic", topic, "--since", written(24))

    # refused: nothing is moved
    refused = run(kafka, *since, typed="n\n")
    assert refused.exit_code == 1
    assert "6 records come again" in refused.stderr
    done = run(kafka, *since, "--yes")
    assert done.exit_code == 0, done.output
    assert f"{group} at {kafka} from {written(24)}: 6 records come again." in done.stderr
    # 24 to 29 are the six; from 30 on it had read nothing
    assert read(kafka, group, topic) == list(range(24, 40))


def test_a_group_is_never_moved_forward(kafka: str, group: str, topic: str) -> None:
    read(kafka, group, topic, until=10)
    late = plan(kafka, group, [topic], first() + 20_000)
    assert [(rewind.moves, rewind.again) for rewind in late] == [(False, 0)] * 2
    rewind(kafka, group, late)
    assert read(kafka, group, topic) == list(range(10, 40))


def test_a_group_from_the_other_site_begins_at_the_moment(kafka: str, group: str, topic: str) -> None:
    """It has no position here: what it read there is unknown, and all from that moment on is the price."""
    done = run(kafka, "--group", group, "--topic", topic, "--since", written(31), "--yes")
    assert done.exit_code == 0, done.output
    assert "at most 9 records come again" in done.stderr
    assert read(kafka, group, topic) == list(range(31, 40))


def test_a_group_that_is_read_is_left_alone(kafka: str, group: str, topic: str) -> None:
    read(kafka, group, topic)
    planned = plan(kafka, group, [topic], first())
    consumer = reader(kafka, group, topic)
    try:
        until = time.monotonic() + 60
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < until
        with pytest.raises(NotDone, match="read by 1 consumer: stop them first"):
            plan(kafka, group, [topic], first())
        with pytest.raises(NotDone, match="was not moved"):  # started after it was asked
            rewind(kafka, group, planned)
    finally:
        consumer.close()
    assert read(kafka, group, topic) == []


def test_the_shops_own_groups_and_wrong_use_are_refused(kafka: str, topic: str) -> None:
    for name in ("order-workers", "inventory-workers", "daybook-projection"):
        with pytest.raises(NotDone, match=name):
            plan(kafka, name, [topic], first())
    assert run(kafka).exit_code == 1
    assert run(kafka, "--group", "g", "--topic", topic).exit_code == 1
    assert run(kafka, "--into", "orders", "--since", "1h").exit_code == 1
    assert "is no time" in run(kafka, "--group", "g", "--topic", topic, "--since", "yesterday").stderr
    assert "no topic" in run(kafka, "--group", "g", "--topic", "nowhere", "--since", "1h").stderr


def test_another_sites_group_is_not_moved_by_a_left_over_address(
    kafka: str, group: str, topic: str, tmp_path: Path
) -> None:
    """The environment may still name home's broker; `--site away` means away's, which is not up here."""
    (tmp_path / "away").mkdir()
    command = (sys.executable, "-m", "infra.cli", "--site", "away", "replay", "--yes")
    done = subprocess.run(
        [*command, "--group", group, "--topic", topic, "--since", "1h"],
        env={
            **os.environ,
            "DAYBOOK_HOME": str(tmp_path),
            "DAYBOOK_PORT_BASE": "36000",
            "DAYBOOK_KAFKA": kafka,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "the stack is not running" in done.stderr
    assert [rewind.committed for rewind in plan(kafka, group, [topic], first())] == [None, None]


def test_a_moment_names_its_offset_or_is_an_age() -> None:
    moment = 1_700_000_000_000
    assert moment_of("2023-11-14T23:13:20+01:00", 0) == moment_of("2023-11-14T22:13:20Z", 0) == moment
    assert [moment_of(age, moment) for age in ("90s", "2h")] == [moment - 90_000, moment - 7_200_000]
    with pytest.raises(ValueError):
        moment_of("2023-11-14T22:13:20", 0)


def test_a_long_way_back_is_a_bound(kafka: str, group: str, topic: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("infra.log.positions.COUNTED", 5)
    read(kafka, group, topic)
    planned: list[Rewind] = plan(kafka, group, [topic], first())
    assert [rewind.exact for rewind in planned] == [False, False]
    assert all(rewind.again >= 20 for rewind in planned)
