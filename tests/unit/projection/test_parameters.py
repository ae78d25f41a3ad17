"""Digits and dates in a query are ASCII, and have one form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from services.edge.problems import Problem
from services.projection.reads import (
    MAX_PAGE,
    Cursor,
    Day,
    Duration,
    Limit,
    Moment,
    Name,
    Number,
    from_cursor,
    to_cursor,
)

Read = Callable[[str], Any]
KEYS = TypeAdapter(tuple[Number, Name])

limit: Read = TypeAdapter(Limit).validate_python
cursor: Read = TypeAdapter(Cursor).validate_python
seconds: Read = TypeAdapter(Duration).validate_python
moment: Read = TypeAdapter(Moment).validate_python
day: Read = TypeAdapter(Day).validate_python
either: Read = TypeAdapter(
    Annotated[Moment | None, Field(description="as the routes have it")]
).validate_python


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (limit, "12", 12),
        (limit, f"{MAX_PAGE}", MAX_PAGE),
        (seconds, "2", 2.0),
        (seconds, "0.5s", 0.5),
        (seconds, "500ms", 0.5),
        (day, "2010-12-01", date(2010, 12, 1)),
        (moment, "2010-12-01", 1_291_161_600_000_000),
        (moment, "2010-12-01T08:26:00Z", 1_291_191_960_000_000),
        (moment, "2010-12-01T09:26:00.000001+01:00", 1_291_191_960_000_001),
        # a plus sign that was not percent-encoded
        (moment, "2010-12-01T09:26:00 01:00", 1_291_191_960_000_000),
        (either, "2010-12-01", 1_291_161_600_000_000),
    ],
)
def test_what_is_read(read: Read, text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (limit, "١٢"),
        (limit, "１２"),
        (limit, "1_2"),
        (limit, " 12"),
        (limit, "+12"),
        (limit, "12\n"),
        (limit, "12.0"),
        (limit, "-12"),
        (limit, "0"),
        (limit, f"{MAX_PAGE + 1}"),
        (limit, "9" * 5000),
        (seconds, "٢"),
        (seconds, "٠.٥s"),
        (seconds, "1e3"),
        (seconds, "-1"),
        (seconds, "inf"),
        (day, "٢٠١٠-١٢-٠١"),
        (day, "20101201"),
        (day, "2010-W48-3"),
        (day, "2010-13-01"),
        (day, "1291161600"),
        (day, "2010-12-01T00:00:00"),
        (moment, "٢٠١٠-١٢-٠١"),
        (moment, "2010-W48-3"),
        (moment, "2010-12-01٠08:26:00Z"),
        (moment, "2010-12-01_08:26:00Z"),
        (moment, "20101201T082600Z"),
        (moment, "2010-12-01T08Z"),
        (moment, "2010-12-01T25:00:00Z"),
        (moment, "2010-12-01T08:26:00.١Z"),
        (moment, "2010-12-01T08:26:00"),
        (moment, "1291161600"),
        (either, "1291161600"),
        (cursor, "a b"),
        (cursor, ""),
    ],
)
def test_what_is_refused(read: Read, text: str) -> None:
    with pytest.raises(ValidationError):
        read(text)


@pytest.mark.parametrize("keys", [(2**53, "o-1"), (-(2**53), ""), (0, "ä")])
def test_a_cursor_comes_back_as_its_keys(keys: tuple[int, str]) -> None:
    assert from_cursor(to_cursor(keys), KEYS) == keys
    padded = to_cursor(keys) + "=" * (-len(to_cursor(keys)) % 4)
    assert from_cursor(padded, KEYS) == keys


@pytest.mark.parametrize(
    "given",
    [
        "a",
        "bm90aGluZw",
        to_cursor((2**70, "o-1")),
        to_cursor((1, "\0")),
        to_cursor(("1", "a")),
        to_cursor((1.5, "a")),
    ],
)
def test_what_is_no_cursor_of_the_query_is_refused(given: str) -> None:
    with pytest.raises(Problem) as refused:
        from_cursor(given, KEYS)
    assert (refused.value.status, refused.value.extra["field"]) == (422, "cursor")
