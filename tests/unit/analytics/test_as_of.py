"""The forms of a moment."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from analytics.events import moment


def test_a_day_is_its_last_instant() -> None:
    assert moment("2011-03-31") == datetime(2011, 4, 1, tzinfo=UTC) - timedelta(microseconds=1)


def test_a_time_is_utc_unless_it_says_otherwise() -> None:
    assert moment("2011-03-31T12:00") == datetime(2011, 3, 31, 12, tzinfo=UTC)
    assert moment("2011-03-31T12:00+02:00") == datetime(2011, 3, 31, 12, tzinfo=timezone(timedelta(hours=2)))


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(ValueError, match="march"):
        moment("march")
