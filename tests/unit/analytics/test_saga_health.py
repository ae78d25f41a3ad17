"""Conversations: literal turns in, rows out."""

from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from analytics.marts.saga_health import saga_health
from analytics.staging import conversations
from tests.unit.analytics.shop_frames import MONDAY, collected

TURNS = """order_id string, step string, number int, asked int, answered int, refused int, ends_as string,
    id string, at timestamp, recorded_at timestamp"""
ASKS = "id string, cause string, sent long"
DAY = MONDAY.date()


def asked(order: str, step: str, skus: int, number: int = 0) -> tuple[Any, ...]:
    return (order, step, number, skus, 0, 0, None, f"{order}-{step}-{number}", MONDAY, MONDAY)


def answered(
    order: str,
    step: str,
    skus: int,
    seconds: int,
    refused: int = 0,
    ends_as: str | None = None,
    number: int = 0,
) -> tuple[Any, ...]:
    later = MONDAY + timedelta(seconds=seconds)
    return (order, step, number, 0, skus, refused, ends_as, f"{order}-{seconds}", MONDAY, later)


def test_conversations_by_their_end(spark: SparkSession) -> None:
    conversation_events = [
        asked("a", "reserve", 3),
        answered("a", "reserve", 2, 1),
        answered("a", "reserve", 1, 4, ends_as="confirmed"),
        asked("b", "reserve", 2),
        answered("b", "reserve", 1, 2, refused=1, ends_as="rejected"),
        asked("b", "release", 1),
        answered("b", "release", 1, 3),
        asked("c", "reserve", 1),
    ]
    outgoing_commands = spark.createDataFrame(
        [("x", "a-reserve-0", 3), ("y", "a-reserve-0", 1), ("z", "c-reserve-0", 2)], ASKS
    )
    assert collected(saga_health(spark.createDataFrame(conversation_events, TURNS), outgoing_commands)) == [
        (DAY, "release", "done", 1, 1, 1, 0, 3.0, 3.0, 3.0),
        (DAY, "reserve", "confirmed", 1, 3, 2, 2, 4.0, 4.0, 4.0),
        (DAY, "reserve", "open", 1, 1, 0, 1, None, None, None),
        (DAY, "reserve", "rejected", 1, 2, 1, 0, 2.0, 2.0, 2.0),
    ]


def test_movements_are_done_when_all_is_answered(spark: SparkSession) -> None:
    conversation_events = [
        asked("a", "issue", 2),
        answered("a", "issue", 1, 1),
        asked("b", "return", 1, number=1),
        answered("b", "return", 1, 5, refused=1, number=1),
        asked("b", "return", 1, number=2),
        answered("b", "return", 1, 7, number=2),
        answered("stranger", "issue", 1, 7),
    ]
    frame = saga_health(spark.createDataFrame(conversation_events, TURNS), None)
    assert collected(frame, "step", "outcome", "conversations", "retries", "seconds_max") == [
        ("issue", "open", 1, None, None),
        ("return", "done", 1, None, 7.0),
        ("return", "refused", 1, None, 5.0),
    ]


def test_an_ask_belongs_to_the_event_that_first_asked(spark: SparkSession) -> None:
    """Asked again, it names the order as its cause."""
    commands = [
        ("x", "placed-event", MONDAY, 4),
        ("x", "o-1", MONDAY + timedelta(seconds=30), 9),
        ("x", "o-1", MONDAY + timedelta(seconds=60), 11),
        ("y", "placed-event", MONDAY, 5),
        ("receipt", None, MONDAY, 1),
    ]
    frame = spark.createDataFrame(
        commands, "id string, causation_id string, recorded_at timestamp, offset long"
    )
    assert sorted(map(tuple, conversations.outgoing_commands(frame).collect()), key=str) == [
        ("receipt", None, 1),
        ("x", "placed-event", 3),
        ("y", "placed-event", 1),
    ]
