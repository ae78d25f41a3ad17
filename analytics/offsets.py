"""How far a reading of the log goes: fixed once, so that every reading of it is the same."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset of the next record, exclusive."""

ANSWER_SECONDS = 30.0
POLL_SECONDS = 0.2


class LogUnreachable(Exception):
    """The broker did not answer, or a topic does not exist."""


class AheadOfLog(Exception):
    """A reader stands behind the log's end: it has read another log."""


class ReplayIncomplete(Exception):
    """A reader of the log did not come to its fixed end in time."""


def end_offsets(kafka: str, topics: Iterable[str]) -> Offsets:
    """Where the committed log ends now: the last stable offset of every partition. Raises LogUnreachable.

    What belongs to a transaction that is still open lies beyond it.
    """
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    try:
        known = admin.list_topics(timeout=ANSWER_SECONDS).topics
        missing = [topic for topic in topics if topic not in known]
        if missing:
            raise LogUnreachable(f"no such topic: {', '.join(missing)}")
        asked = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
        answers = admin.list_offsets(
            {partition: OffsetSpec.latest() for partition in asked},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_SECONDS,
        )
        ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for partition, answer in answers.items():
            ends[partition.topic][partition.partition] = answer.result(ANSWER_SECONDS).offset
    except KafkaException as error:
        raise LogUnreachable(f"the broker at {kafka} does not answer: {error}") from error
    return ends


def topic_ids(kafka: str, topics: Iterable[str]) -> dict[str, str]:
    """The identity of each topic: another one once it was deleted and made anew. Raises LogUnreachable."""
    names = list(topics)
    try:
        admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
        answers = admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS)
        return {name: str(answers[name].result(ANSWER_SECONDS).topic_id) for name in names}
    except KafkaException as error:
        raise LogUnreachable(f"the broker at {kafka} does not tell its topics: {error}") from error


def check_within(ends: Offsets, positions: Mapping[str, Offsets]) -> None:
    """Raise AheadOfLog where a reader, by name, has a position that the log does not reach."""
    for name, offsets in positions.items():
        for topic, partitions in offsets.items():
            for number, offset in partitions.items():
                end = ends.get(topic, {}).get(number, 0)
                if offset > end:
                    raise AheadOfLog(f"{name} stands at {topic}/{number}/{offset}, but the log ends at {end}")


def wait_until_read(kafka: str, ends: Offsets, positions: Callable[[], Offsets], seconds: float) -> None:
    """Return once a reader at `positions()` has nothing left before `ends`. Raises NotCaughtUp.

    Behind the last record there may be transaction markers, so a position may stay below the end for ever:
    where it does, the log itself is asked whether a record follows.
    """
    deadline = time.monotonic() + seconds
    while behind := _behind(kafka, ends, positions()):
        if time.monotonic() > deadline:
            where = ", ".join(f"{topic}/{number} at {at}" for topic, number, at in behind)
            raise ReplayIncomplete(f"not read within {seconds:.0f} s: {where}")
        time.sleep(POLL_SECONDS)


def _behind(kafka: str, ends: Offsets, positions: Offsets) -> list[tuple[str, int, int]]:
    found = []
    for topic, partitions in ends.items():
        for number, end in partitions.items():
            position = positions.get(topic, {}).get(number, 0)
            if position < end and _record_follows(kafka, topic, number, position, end):
                found.append((topic, number, position))
    return found


def _record_follows(kafka: str, topic: str, number: int, position: int, end: int) -> bool:
    """Whether a committed record lies in [position, end)."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "daybook-audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, position)])
        while True:
            record = consumer.poll(ANSWER_SECONDS)
            if record is None:
                raise LogUnreachable(f"the broker at {kafka} does not answer")
            error = record.error()
            if error is None:
                return bool(record.offset() < end)
            if error.code() == KafkaError._PARTITION_EOF:
                return False
            raise LogUnreachable(str(error))
    finally:
        consumer.close()
