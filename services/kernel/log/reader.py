"""Reading a topic from given positions to its end, exactly.

The end is the high watermark, read uncommitted, captured *before* reading; it is reached when the
read_committed consumer's partition-EOF event stands at or beyond it. The last record's offset proves nothing:
markers and aborted data may close the log.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from services.kernel import KernelError
from services.kernel.log import clients
from services.kernel.record.codec import what_is_there

Result = TypeVar("Result")
Positions = dict[int, int]
TAIL = 500  # offsets in which the last record of a partition is looked for
# Errors while a broker starts or a partition changes its leader. librdkafka does not retry them by itself.
_MOVING = (
    KafkaError._NOENT,  # of a broker that wakes or starts: no partition of the topic has a leader yet
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
Partition: TypeAlias = tuple[str, int]
"""Topic and number."""
WINDOW = 500  # records that are counted one by one


class NotCaughtUp(KernelError, TimeoutError):
    """The end of the topic was not reached in time: a transaction is still open, or the broker is away."""


def once_settled(call: Callable[[], Result], seconds: float) -> Result:
    """Call until it succeeds, for up to `seconds` while leaders and coordinators move; returns the result."""
    until = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > until:
                raise
            time.sleep(0.05)


def high_watermarks(bootstrap: str, topic: str, partitions: list[int], timeout: float = 30) -> Positions:
    """The high watermark of each partition, open transactions included."""
    return _ends(bootstrap, topic, partitions, timeout, IsolationLevel.READ_UNCOMMITTED)


def last_stable_offsets(bootstrap: str, topic: str, partitions: list[int], timeout: float = 30) -> Positions:
    """The first offset of each partition that a reader of committed records cannot pass yet."""
    return _ends(bootstrap, topic, partitions, timeout, IsolationLevel.READ_COMMITTED)


def _ends(
    bootstrap: str, topic: str, partitions: list[int], timeout: float, isolation: IsolationLevel
) -> Positions:
    admin = _admin(bootstrap)
    targets = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}

    def call() -> Positions:
        # Who leads them now? Asked before it knows, a client may wait for 3 s (seen on librdkafka 2.16).
        admin.list_topics(topic, timeout)
        results = admin.list_offsets(targets, isolation_level=isolation, request_timeout=timeout)
        return {target.partition: result.result().offset for target, result in results.items()}

    return once_settled(call, timeout)


def partitions_of(bootstrap: str, topic: str, timeout: float = 30) -> list[int]:
    """The partitions of a topic. Raises KeyError when there is no such topic."""
    return partitions_by_topic(bootstrap, timeout)[topic]


def partitions_by_topic(bootstrap: str, timeout: float = 30) -> dict[str, list[int]]:
    """The partitions of every topic that has some: one question, however many topics."""
    described = _admin(bootstrap).list_topics(timeout=timeout)
    return {name: sorted(topic.partitions) for name, topic in described.topics.items() if topic.partitions}


@lru_cache(maxsize=4)
def _admin(bootstrap: str) -> AdminClient:
    """One shared client per cluster, because connecting takes longer than the requests. Errors are raised, not
    logged."""
    return clients.admin(bootstrap)


def partition_counts(bootstrap: str) -> dict[str, int]:
    """How many partitions each topic has."""
    return {topic: len(numbers) for topic, numbers in partitions_by_topic(bootstrap).items()}


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
    with clients.reader(bootstrap) as consumer:
        targets = [TopicPartition(topic, number, moment) for number in partitions]
        results = consumer.offsets_for_times(targets, timeout)
        ends = [consumer.get_watermark_offsets(at, timeout)[1] for at in targets]
    return {at.partition: at.offset if at.offset >= 0 else end for at, end in zip(results, ends, strict=True)}


def read_to_end(
    bootstrap: str,
    topic: str,
    starts: Mapping[int, int] | None = None,
    ends: Mapping[int, int] | None = None,
    *,
    committed_only: bool = True,
    until: Callable[[Message], bool] = lambda _: False,
    timeout: float = 60,
) -> Iterator[Message]:
    """Every record of `topic` from `starts` (partition → offset; default: all of it) to `ends` (default: those at the
    call).

    A start that retention or compaction has passed begins at the first record left. A partition ends early, before
    the first record of which `until` is true. Raises `NotCaughtUp` when nothing moves for `timeout` seconds.
    """
    starts = dict.fromkeys(partitions_of(bootstrap, topic), 0) if starts is None else starts
    reach = dict(ends if ends is not None else high_watermarks(bootstrap, topic, list(starts)))
    todo = {partition for partition, start in starts.items() if reach[partition] > start}
    if not todo:
        return
    isolation = {"isolation.level": "read_committed" if committed_only else "read_uncommitted"}
    with clients.reader(bootstrap, isolation | {"fetch.wait.max.ms": 10}) as consumer:
        consumer.assign([TopicPartition(topic, partition, starts[partition]) for partition in todo])
        yield from _drain(consumer, todo, reach, timeout, until)


def _drain(
    consumer: Consumer, todo: set[int], reach: Positions, timeout: float, until: Callable[[Message], bool]
) -> Iterator[Message]:
    ended = set[int]()
    moved = time.monotonic()
    while todo:
        records = what_is_there(consumer, 5000, 0.2)
        if not records and time.monotonic() - moved > timeout:
            raise NotCaughtUp(f"partitions {sorted(todo)} did not reach {reach} within {timeout} s")
        for record in records:
            error = record.error()
            if error is None:
                moved = time.monotonic()
                if record.partition() in ended:
                    continue
                if until(record):
                    ended.add(record.partition())
                    todo.discard(record.partition())
                    consumer.incremental_unassign([TopicPartition(record.topic(), record.partition())])
                else:
                    yield record
            elif error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable():
                    raise KafkaException(error)
            elif record.offset() >= reach[record.partition()]:
                todo.discard(record.partition())


def events_follower(bootstrap: str, positions: Mapping[str, Mapping[int, int]]) -> Consumer:
    """A consumer without a group that reads what is committed from these positions (topic, partition) on."""
    starts = (TopicPartition(topic, *at) for topic, own in positions.items() for at in own.items())
    return clients.follower(bootstrap, starts)


def commands_consumer(bootstrap: str, group: str) -> Consumer:
    """A consumer of commands, to be assigned; its group holds the committed positions."""
    return clients.follower(bootstrap, options={"group.id": group, "queued.min.messages": 20_000})


class NotKnown(KernelError):
    """The broker did not answer in time, or a position lies outside the log."""


class Behind(NamedTuple):
    """What is left behind a position.

    `records` is exact up to `WINDOW`; above that it counts offsets, markers included. `oldest_ms` is the time
    of the oldest record that is left; None where none is left.
    """

    records: int
    oldest_ms: int | None


class _Window(NamedTuple):
    """The first records from a position on, as offset and time; `end` is None where no more follow."""

    records: list[tuple[int, int]]
    end: int | None

    def behind(self, offset: int) -> Behind | None:
        """None where `offset` lies beyond the window and more records follow."""
        left = [record for record in self.records if record[0] >= offset]
        if self.end is None:
            return Behind(len(left), left[0][1] if left else None)
        return Behind(self.end - offset, left[0][1]) if left else None


class LogTail:
    """Looks at the end of the log again and again; one thread at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer: Consumer | None = None

    def partitions(self, topics: Collection[str], seconds: float) -> list[Partition]:
        """The partitions that the topics have now. Raises `NotKnown`."""
        try:
            described = self._connected().list_topics(timeout=seconds).topics
        except KafkaException as error:
            raise self._lost(error.args[0].str()) from error
        return [
            (topic, number)
            for topic in topics
            if topic in described
            for number in described[topic].partitions
        ]

    def behind(
        self, positions: Collection[tuple[Partition, int]], seconds: float
    ) -> Mapping[tuple[Partition, int], Behind]:
        """What is left behind each position (a partition and its next offset). Raises `NotKnown`."""
        until = time.monotonic() + seconds
        todo, results = set(positions), dict[tuple[Partition, int], Behind]()
        try:
            while todo:
                lowest = dict(sorted(todo, reverse=True))
                windows = self._read(lowest, until)
                for partition, offset in list(todo):
                    if (behind := windows[partition].behind(offset)) is not None:
                        results[partition, offset] = behind
                        todo.discard((partition, offset))
        except KafkaException as error:
            raise self._lost(error.args[0].str()) from error
        return results

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, starts: Mapping[Partition, int], until: float) -> dict[Partition, _Window]:
        consumer = self._connected()
        consumer.assign([TopicPartition(*partition, offset) for partition, offset in starts.items()])
        records: dict[Partition, list[tuple[int, int]]] = {partition: [] for partition in starts}
        more, todo = set[Partition](), set(starts)
        while todo:
            if time.monotonic() > until:
                raise self._lost("the end of the log was not reached in time")
            for record in what_is_there(consumer, WINDOW, 0.05):
                partition = (record.topic(), record.partition())
                if self._is_record(record, starts[partition]) and partition in todo:
                    records[partition].append((record.offset(), record.timestamp()[1]))
                    if len(records[partition]) == WINDOW:
                        more.add(partition)
                elif record.error() is not None and record.error().code() == KafkaError._PARTITION_EOF:
                    todo.discard(partition)
            todo -= more
        consumer.unassign()
        return {
            partition: _Window(left, self._end(partition, until) if partition in more else None)
            for partition, left in records.items()
        }

    def _is_record(self, record: Message, start: int) -> bool:
        """Raises `NotKnown` where the client was sent elsewhere, because the log does not contain the start."""
        if (error := record.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
            if error.retriable():
                return False
            raise KafkaException(error)
        if record.offset() < start:
            raise self._lost(f"{record.topic()}/{record.partition()} ends before position {start}")
        return error is None

    def _end(self, partition: Partition, until: float) -> int:
        """The last stable offset: nothing behind it can be read by anyone."""
        seconds = max(0.1, until - time.monotonic())
        end: int = self._connected().get_watermark_offsets(TopicPartition(*partition), seconds)[1]
        return end

    def _connected(self) -> Consumer:
        if self._consumer is None:
            sizes = {"fetch.message.max.bytes": 128 * 1024, "queued.min.messages": WINDOW}
            # a position that retention has passed: what is left begins at the first record
            self._consumer = clients.reader(self._bootstrap, sizes | {"fetch.wait.max.ms": 10})
        return self._consumer

    def _lost(self, reason: str) -> NotKnown:
        """Connects again next time: after an outage the broker and its log may have been replaced."""
        self.close()
        return NotKnown(reason)
