"""Order across partitions, rebuilt by time: five literal rows in, rows out."""

from datetime import timedelta

from pyspark.sql import SparkSession

from analytics.events import ORDER, timeline
from tests.unit.analytics.shop_frames import MONDAY

ENVELOPES = (
    "topic string, partition int, offset long, recorded_at timestamp, correlation_id string, type string"
)
SECOND = timedelta(seconds=1)
ROWS = [
    ("order.events", 0, 10, MONDAY, "x", "placed"),
    ("inventory.events", 1, 7, MONDAY + 1 * SECOND, "x", "reserved"),
    ("inventory.events", 0, 3, MONDAY + 2 * SECOND, "x", "reserved too"),
    ("order.events", 0, 12, MONDAY + 3 * SECOND, "x", "confirmed"),
    ("order.events", 1, 1, MONDAY + 1 * SECOND, "y", "placed too"),
]


def test_partitions_become_one_history(spark: SparkSession) -> None:
    rows = timeline(spark.createDataFrame(ROWS[::-1], ENVELOPES)).orderBy(*ORDER).collect()
    assert [row["type"] for row in rows] == ["placed", "reserved", "placed too", "reserved too", "confirmed"]


def test_a_clock_that_was_set_back_does_not_turn_a_partition_around(spark: SparkSession) -> None:
    shipped = ("order.events", 0, 14, MONDAY - 60 * SECOND, "x", "shipped")
    history = timeline(spark.createDataFrame([*ROWS, shipped], ENVELOPES))
    rows = history.where("correlation_id = 'x'").orderBy(*ORDER).collect()
    assert [row["type"] for row in rows] == ["placed", "reserved", "reserved too", "confirmed", "shipped"]
