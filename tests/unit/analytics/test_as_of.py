"""The forms of a moment."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql import DataFrame, SparkSession

from analytics.events import AsOf, moment


def test_a_day_is_its_last_instant() -> None:
    assert moment("2011-03-31") == datetime(2011, 4, 1, tzinfo=UTC) - timedelta(microseconds=1)


def test_a_time_is_utc_unless_it_says_otherwise() -> None:
    assert moment("2011-03-31T12:00") == datetime(2011, 3, 31, 12, tzinfo=UTC)
    assert moment("2011-03-31T12:00+02:00") == datetime(2011, 3, 31, 12, tzinfo=timezone(timedelta(hours=2)))


class Cancelled:
    """An order that was placed at noon, and cancelled a second before by another clock."""

    def __init__(self, spark: SparkSession) -> None:
        noon = datetime(2026, 11, 2, 12, tzinfo=UTC)
        self.frame = spark.createDataFrame(
            [(noon - timedelta(seconds=1), noon)], "occurred_at timestamp, placed_at timestamp"
        )

    def of(self, _: str) -> DataFrame:
        return self.frame


@pytest.mark.parametrize(("at", "events"), [("11:59:59", 0), ("12:00", 1)])
def test_nothing_is_cancelled_before_it_is_placed(spark: SparkSession, at: str, events: int) -> None:
    assert AsOf(Cancelled(spark), moment(f"2026-11-02T{at}")).of("OrderCancelled").count() == events


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(ValueError, match="march"):
        moment("march")
