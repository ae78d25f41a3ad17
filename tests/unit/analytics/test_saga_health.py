"""The mart of conversations: literal messages in, rows out."""

from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from analytics import staging
from analytics.marts.orders import saga_health
from contracts.kernel.records import InboxBatch, InboxGroup, InboxMessage
from contracts.lock import load_lock
from services.kernel.record.codec import FRAME, encode
from tests.unit.analytics.shop_frames import MONDAY, collected

MESSAGES = """order_id string, step string, number int, asked int, answered int, refused int, ends_as string,
    id string, at timestamp, recorded_at timestamp"""
COMMANDS = "id string, cause string, sent long"
DAY = MONDAY.date()


def request(order: str, step: str, skus: int, number: int = 0) -> tuple[Any, ...]:
    return (order, step, number, skus, 0, 0, None, f"{order}-{step}-{number}", MONDAY, MONDAY)


def reply(
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
        request("a", "reserve", 3),
        reply("a", "reserve", 2, 1),
        reply("a", "reserve", 1, 4, ends_as="confirmed"),
        request("b", "reserve", 2),
        reply("b", "reserve", 1, 2, refused=1, ends_as="rejected"),
        request("b", "release", 1),
        reply("b", "release", 1, 3),
        request("c", "reserve", 1),
    ]
    outgoing_commands = spark.createDataFrame(
        [("x", "a-reserve-0", 3), ("y", "a-reserve-0", 1), ("z", "c-reserve-0", 2)], COMMANDS
    )
    assert collected(
        saga_health(spark.createDataFrame(conversation_events, MESSAGES), outgoing_commands)
    ) == [
        (DAY, "release", "done", 1, 1, 1, 0, 3.0, 3.0, 3.0),
        (DAY, "reserve", "confirmed", 1, 3, 2, 2, 4.0, 4.0, 4.0),
        (DAY, "reserve", "open", 1, 1, 0, 1, None, None, None),
        (DAY, "reserve", "rejected", 1, 2, 1, 0, 2.0, 2.0, 2.0),
    ]


def test_movements_are_done_when_every_reply_is_there(spark: SparkSession) -> None:
    conversation_events = [
        request("a", "issue", 2),
        reply("a", "issue", 1, 1),
        request("b", "return", 1, number=1),
        reply("b", "return", 1, 5, refused=1, number=1),
        request("b", "return", 1, number=2),
        reply("b", "return", 1, 7, number=2),
        reply("stranger", "issue", 1, 7),
    ]
    frame = saga_health(spark.createDataFrame(conversation_events, MESSAGES), None)
    assert collected(frame, "step", "outcome", "conversations", "retries", "seconds_max") == [
        ("issue", "open", 1, None, None),
        ("return", "done", 1, None, 7.0),
        ("return", "refused", 1, None, 5.0),
    ]


def test_a_command_belongs_to_the_event_that_first_caused_it(spark: SparkSession) -> None:
    """A retry of the command names the order as its cause. A batch counts message by message."""
    batch = InboxBatch(
        (
            InboxGroup(
                "reserve", "c", "placed-event", "", "order.inbox", "o-1", (message("x"), message("y"))
            ),
            InboxGroup("outcomes", "c", "", "", "", "", (message("reply"),)),
        )
    )
    value = encode("inventory.inbox", batch)
    later, latest = MONDAY + timedelta(seconds=30), MONDAY + timedelta(seconds=60)
    commands = [
        ("batch", InboxBatch.TYPE, FRAME.unpack_from(value)[1], "batch", MONDAY, 4, bytearray(value)),
        ("x", "reserve", 1, "o-1", later, 9, None),
        ("x", "reserve", 1, "o-1", latest, 11, None),
        ("receipt", "receive", 2, None, MONDAY, 1, None),
    ]
    frame = spark.createDataFrame(
        commands,
        "id string, type string, schema_id long, causation_id string, recorded_at timestamp, offset long, "
        "value binary",
    )
    assert sorted(map(tuple, staging.outgoing_commands(frame, load_lock()).collect()), key=str) == [
        ("receipt", None, 1),
        ("reply", "reply", 1),
        ("x", "placed-event", 3),
        ("y", "placed-event", 1),
    ]


def message(name: str) -> InboxMessage:
    return InboxMessage(name, "sku", "", b"")
