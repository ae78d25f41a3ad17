"""Spark's rule for records of the log agrees with the shared table; all cases run in one job."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from analytics import envelope
from analytics.envelope import with_kind
from analytics.log_rule import WAITING, Exceptions, find_exceptions
from analytics.stream_steps import murmur2
from contracts.lock import load_lock
from services.kernel.log import rule as log_rule
from services.kernel.log.rule import Journal
from services.kernel.record.envelope import LARGEST_NUMBER
from services.kernel.record.envelope import murmur2 as murmur2_of_the_services
from tests.contract.log_rule_cases import CASES, PARTITIONS, TOPIC, Case

SOURCE = """
    topic string, partition int, offset long, key binary, value binary,
    headers array<struct<key string, value binary>>
"""


def topic(number: int) -> str:
    """Each case is a topic of its own."""
    return f"case-{number}"


def decisions(cases: tuple[Case, ...]) -> Journal:
    verdicts = {
        about._replace(stream=about.stream.replace("stock", topic(number), 1)): verdict
        for number, case in enumerate(cases)
        for about, verdict in case.journal.verdicts.items()
    }
    epochs = {
        topic(number): frozenset(case.journal.epochs[TOPIC])
        for number, case in enumerate(cases)
        if case.journal.epochs
    }
    return Journal(verdicts, epochs=epochs)


def readings(case: Case, name: str, exceptions: Exceptions) -> tuple[str, ...]:
    """How the exceptions classify each record of the case."""
    rows = [row for row in exceptions.to_pylist() if row["topic"] == name]
    records = {row["offset"]: row["what"] for row in rows if row["entity"] is None}
    stopped = {row["entity"]: (row["offset"], row["what"]) for row in rows if row["entity"] is not None}
    result = []
    for offset, record in enumerate(case.log):
        stop, step = stopped.get((record.key or b"").decode(errors="replace"), (len(case.log), ""))
        behind = step if offset == stop else WAITING
        result.append(records.get(offset, behind if offset >= stop else "next"))
    return tuple(result)


@pytest.fixture(scope="module")
def exceptions(spark: SparkSession) -> Exceptions:
    rows = [
        (topic(number), 0, offset, record.key, record.value, [*record.headers])
        for number, case in enumerate(CASES)
        for offset, record in enumerate(case.log)
    ]
    log = with_kind(spark.createDataFrame(rows, SOURCE))
    partitions = {topic(number): PARTITIONS for number in range(len(CASES))}
    return find_exceptions(log, partitions, decisions(CASES), load_lock())


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].name)
def test_spark_agrees_with_the_table(exceptions: Exceptions, number: int) -> None:
    assert readings(CASES[number], topic(number), exceptions) == CASES[number].readings


def test_what_is_named_twice_is_named_alike() -> None:
    assert (envelope.OPENING_KEY, envelope.LONGEST_KEY) == (log_rule.OPENING_KEY, log_rule.LONGEST_KEY)
    assert envelope.LARGEST_NUMBER == LARGEST_NUMBER


def test_keys_are_hashed_as_kafka_does() -> None:
    random = Random(1)
    keys = [random.randbytes(random.randint(1, 80)) for _ in range(3_000)]
    assert murmur2(keys).tolist() == [murmur2_of_the_services(key) for key in keys]
