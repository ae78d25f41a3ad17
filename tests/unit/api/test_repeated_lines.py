"""A library that says the same for every attempt is heard once in a while."""

from __future__ import annotations

import logging
import sys

from services.edge.json_logs import REPEAT_SECONDS, RepeatFilter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def passed(repeats: RepeatFilter, template: str, *values: object, name: str = "aiokafka") -> str | None:
    record = logging.LogRecord(name, logging.ERROR, "", 0, template, values, None)
    return record.getMessage() if repeats.filter(record) else None


def test_a_template_passes_once_per_period_and_counts_suppressed_lines() -> None:
    clock = Clock()
    repeats = RepeatFilter(clock)
    assert passed(repeats, "no node %s: %s", 1, "refused") == "no node 1: refused"
    for number in range(50):
        assert passed(repeats, "no node %s: %s", number, "gone") is None
    assert passed(repeats, "another") == "another"
    assert passed(repeats, "another", name="faust") == "another"
    clock.now += REPEAT_SECONDS
    assert passed(repeats, "no node %s: %s", 2, "refused") == "no node 2: refused (50 such lines left out)"
    clock.now += REPEAT_SECONDS
    assert passed(repeats, "no node %s: %s", 3, "refused") == "no node 3: refused"


def test_exceptions_always_pass() -> None:
    repeats = RepeatFilter(Clock())
    try:
        raise ValueError("x")
    except ValueError:
        error = sys.exc_info()
    records = [logging.LogRecord("faust", logging.ERROR, "", 0, "crashed", (), error) for _ in range(3)]
    assert [repeats.filter(record) for record in records] == [True, True, True]


def test_the_number_of_templates_is_bounded() -> None:
    repeats = RepeatFilter(Clock())
    for number in range(5000):
        assert passed(repeats, f"line {number}") is not None
    assert len(repeats._passed) <= 1000
