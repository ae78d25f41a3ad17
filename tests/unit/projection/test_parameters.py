"""Digits and dates in a query are ASCII, and have one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pytest

from services.edge.http import Problem
from services.projection import parameters

Read = Callable[[Mapping[str, str], str], Any]


def whole(given: Mapping[str, str], name: str) -> int:
    return parameters.whole(given, name, 0, -1000, 1000)


def seconds(given: Mapping[str, str], name: str) -> float:
    return parameters.seconds(given, name, 0)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (whole, "12", 12),
        (whole, "-12", -12),
        (seconds, "2", 2.0),
        (seconds, "0.5s", 0.5),
        (seconds, "500ms", 0.5),
        (parameters.day, "2010-12-01", date(2010, 12, 1)),
        (parameters.moment, "2010-12-01", 1_291_161_600_000_000),
        (parameters.moment, "2010-12-01T08:26:00Z", 1_291_191_960_000_000),
        (parameters.moment, "2010-12-01T09:26:00.000001+01:00", 1_291_191_960_000_001),
        # a plus sign that was not percent-encoded
        (parameters.moment, "2010-12-01T09:26:00 01:00", 1_291_191_960_000_000),
    ],
)
def test_what_is_read(read: Read, text: str, value: object) -> None:
    assert read({"given": text}, "given") == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (whole, "١٢"),
        (whole, "１２"),
        (whole, "1_2"),
        (whole, " 12"),
        (whole, "+12"),
        (seconds, "٢"),
        (seconds, "٠.٥s"),
        (seconds, "1e3"),
        (parameters.day, "٢٠١٠-١٢-٠١"),
        (parameters.day, "20101201"),
        (parameters.day, "2010-W48-3"),
        (parameters.day, "2010-13-01"),
        (parameters.moment, "٢٠١٠-١٢-٠١"),
        (parameters.moment, "2010-W48-3"),
        (parameters.moment, "2010-12-01٠08:26:00Z"),
        (parameters.moment, "2010-12-01_08:26:00Z"),
        (parameters.moment, "20101201T082600Z"),
        (parameters.moment, "2010-12-01T08Z"),
        (parameters.moment, "2010-12-01T25:00:00Z"),
        (parameters.moment, "2010-12-01T08:26:00.١Z"),
        (parameters.moment, "2010-12-01T08:26:00"),
    ],
)
def test_what_is_refused(read: Read, text: str) -> None:
    with pytest.raises(Problem) as refused:
        read({"given": text}, "given")
    assert (refused.value.status, refused.value.extra["field"]) == (422, "given")
