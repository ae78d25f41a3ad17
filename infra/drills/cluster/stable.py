"""What committed readers can have now: the log up to its first undecided transaction."""

from __future__ import annotations

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from infra.checker.evidence import LOGS
from services.kernel.envelope import read_headers
from services.kernel.log_reader import Positions, end_offsets, partitions_of, read_to_end

ASK_SECONDS = 30.0


def readable_events(bootstrap: str) -> tuple[set[str], int]:
    """The ids of all events before the last stable offsets, and how many offsets stand behind these.

    With two of three brokers dead no coordinator can decide a transaction: one that was open stays open, and
    read_committed readers stop before it. Raises KafkaException, NotCaughtUp.
    """
    ids: set[str] = set()
    held_back = 0
    for topic in LOGS:
        numbers = partitions_of(bootstrap, topic)
        stable = _stable_ends(bootstrap, topic, numbers)
        for record in read_to_end(bootstrap, topic, dict.fromkeys(numbers, 0), stable):
            ids.add(read_headers(record.headers()).id)
        ends = end_offsets(bootstrap, topic, numbers)
        held_back += sum(ends[number] - stable[number] for number in numbers)
    return ids, held_back


def _stable_ends(bootstrap: str, topic: str, numbers: list[int]) -> Positions:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = admin.list_offsets(
        {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=ASK_SECONDS,
    )
    return {place.partition: answer.result(ASK_SECONDS).offset for place, answer in asked.items()}
