"""Reading a topic from given positions to its end, exactly.

The end is the high watermark, read uncommitted, captured *before* reading; it is reached when the
read_committed consumer's partition-EOF event stands at or beyond it. A last record's offset never tells:
markers and aborted data may close the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from services.kernel.errors import KernelError
from services.kernel.log import clients

Answer = TypeVar("Answer")
Positions = dict[int, int]
TAIL = 500  # offsets in which the last record of a partition is looked for

# what a broker says while it starts or a partition changes its leader, and librdkafka does not try again by
# itself
_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class NotCaughtUp(KernelError, TimeoutError):
    """The end of the topic was not reached in time: a transaction is still open, or the broker is away."""


def once_settled(ask: Callable[[], Answer], seconds: float) -> Answer:
    """What `ask` answers, asked again for up to `seconds` while leaders and coordinators move."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > until:
                raise
            time.sleep(0.05)


def high_watermarks(bootstrap: str, topic: str, partitions: list[int], timeout: float = 30) -> Positions:
    """The high watermark of each partition, open transactions included."""
    admin = _admin(bootstrap)
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}

    def ask() -> Positions:
        # Who leads them now? Asked before it knows, a client may wait for 3 s (seen on librdkafka 2.16).
        admin.list_topics(topic, timeout)
        found = admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=timeout
        )
        return {asked.partition: answer.result().offset for asked, answer in found.items()}

    return once_settled(ask, timeout)


def partitions_of(bootstrap: str, topic: str, timeout: float = 30) -> list[int]:
    """The partitions of a topic. Raises KeyError when there is no such topic."""
    return partitions_by_topic(bootstrap, timeout)[topic]


def partitions_by_topic(bootstrap: str, timeout: float = 30) -> dict[str, list[int]]:
    """The partitions of every topic that has some: one question, however many topics."""
    described = _admin(bootstrap).list_topics(timeout=timeout)
    return {name: sorted(topic.partitions) for name, topic in described.topics.items() if topic.partitions}


@lru_cache(maxsize=4)
def _admin(bootstrap: str) -> AdminClient:
    """One client of a cluster for all who ask: to connect takes longer than the questions. Errors are raised,
    not logged."""
    return clients.admin(bootstrap, clients.LASTING | {"log_level": 0})


def partition_counts(bootstrap: str, timeout: float = 30) -> dict[str, int]:
    """How many partitions each topic has."""
    return {topic: len(numbers) for topic, numbers in partitions_by_topic(bootstrap, timeout).items()}


def newest_times(bootstrap: str, topic: str) -> list[int]:
    """The time (ms) of the last committed record of each partition, as far as its end shows one."""
    ends = high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic))
    last: Positions = {}
    for record in read_to_end(bootstrap, topic, {n: max(0, end - TAIL) for n, end in ends.items()}, ends):
        last[record.partition()] = record.timestamp()[1]
    return list(last.values())


def offsets_at(bootstrap: str, topic: str, moment: int, timeout: float = 30) -> Positions:
    """In each partition the first record that is not older than `moment` (ms); its end where none is."""
    partitions = partitions_of(bootstrap, topic, timeout)
    consumer = clients.reader(bootstrap, clients.LASTING)
    try:
        wanted = [TopicPartition(topic, number, moment) for number in partitions]
        found = consumer.offsets_for_times(wanted, timeout)
        ends = [consumer.get_watermark_offsets(at, timeout)[1] for at in wanted]
    finally:
        consumer.close()
    return {at.partition: at.offset if at.offset >= 0 else end for at, end in zip(found, ends, strict=True)}


def read_to_end(
    bootstrap: str,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int] | None = None,
    *,
    committed_only: bool = True,
    timeout: float = 60,
) -> Iterator[Message]:
    """Every record of `topic` from `starts` (partition → offset) to `ends` (default: the ends at the call).

    A start that retention or compaction has passed begins at the first record left. Raises `NotCaughtUp` when
    nothing moves for `timeout` seconds.
    """
    reach = dict(ends if ends is not None else high_watermarks(bootstrap, topic, list(starts)))
    todo = {partition for partition, start in starts.items() if reach[partition] > start}
    if not todo:
        return
    consumer = clients.reader(
        bootstrap,
        clients.LASTING
        | {
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "queued.min.messages": 100_000,
            "check.crcs": False,
        },
    )
    try:
        consumer.assign([TopicPartition(topic, partition, starts[partition]) for partition in todo])
        yield from _drain(consumer, todo, reach, timeout)
    finally:
        consumer.close()


def _drain(consumer: Consumer, todo: set[int], reach: Positions, timeout: float) -> Iterator[Message]:
    moved = time.monotonic()
    while todo:
        records = what_is_there(consumer, 5000, 0.2)
        if not records and time.monotonic() - moved > timeout:
            raise NotCaughtUp(f"partitions {sorted(todo)} did not reach {reach} within {timeout} s")
        for record in records:
            error = record.error()
            if error is None:
                moved = time.monotonic()
                yield record
            elif error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable():
                    raise KafkaException(error)
            elif record.offset() >= reach[record.partition()]:
                todo.discard(record.partition())


def events_follower(bootstrap: str, positions: Mapping[str, Mapping[int, int]]) -> Consumer:
    """A consumer without a group that reads what is committed from these positions (topic, partition) on."""
    starts = (TopicPartition(topic, *at) for topic, own in positions.items() for at in own.items())
    return clients.follower(
        bootstrap, starts, clients.LASTING | {"fetch.wait.max.ms": 100, "check.crcs": False}
    )


def commands_consumer(bootstrap: str, group: str) -> Consumer:
    """A consumer of commands, to be assigned; its group holds the committed positions."""
    return clients.follower(
        bootstrap,
        options=clients.LASTING
        | {
            "group.id": group,
            "fetch.wait.max.ms": 100,
            "fetch.min.bytes": 1,
            "queued.min.messages": 20_000,
            "queued.max.messages.kbytes": 65_536,
            "socket.nagle.disable": True,
            "check.crcs": False,
        },
    )


def what_is_there(consumer: Consumer, most: int, seconds: float) -> list[Message]:
    """Up to `most` records, ends of partitions and errors; waits up to `seconds` for the first one only.

    `consume(most, seconds)` would wait for the last of them.
    """
    records: list[Message] = consumer.consume(1, seconds)
    if records:
        records += consumer.consume(most - 1, 0)
    return records


def sound(records: list[Message]) -> list[Message]:
    """Without what the client mends by itself. Raises KafkaException for what it cannot mend."""
    for record in records:
        if (error := record.error()) is not None and not error.retriable():
            raise KafkaException(error)
    return [record for record in records if record.error() is None]
