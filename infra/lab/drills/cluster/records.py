"""Numbered records: written with a given `acks`, recorded as they are acknowledged, and counted in the log."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from infra.base.background import Background
from infra.log.event_log import EVENT_TOPICS, event_in_any_epoch
from services.kernel.log import clients
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.transactions import produce

FLUSH_SECONDS = 30.0
READ_SECONDS = 60.0


class Numbered:
    """Writes records 0, 1, 2… whose values are their numbers and so many spaces.

    `acknowledged` are those that a delivery report called written, `times` when; `refused` counts the errors of the
    others.
    """

    def __init__(self, bootstrap: str, topic: str, acks: str, padding: int = 0, **more: Any) -> None:
        self._topic, self._padding = topic, b" " * padding
        self._producer = clients.writer(
            bootstrap, {"acks": acks, "enable.idempotence": acks == "all", **more}
        )
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.times: list[float] = []
        self.refused: Counter[str] = Counter()

    def write(self, count: int) -> None:
        """Write so many more, without waiting for their acknowledgement."""
        for number in range(self.sent, self.sent + count):
            value = b"%d" % number + self._padding
            produce(self._producer, self._topic, value, str(number), on_delivery=self._delivered)
            self._producer.poll(0)
        self.sent += count

    def flush(self) -> None:
        """Wait for every delivery report."""
        self._producer.flush(FLUSH_SECONDS)

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        if error is None:
            self.acknowledged.add(int(record.key()))
            self.times.append(time.time())
        else:
            self.refused[error.name()] += 1


class Stream(Background):
    """Writes at a rate, in a thread of its own, between `with` and its end."""

    def __init__(self, records: Numbered, per_second: int) -> None:
        super().__init__("stream")
        self.records = records
        self._per_second = per_second

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.records.flush()

    def _work(self) -> None:
        began, before = time.monotonic(), self.records.sent
        while not self._stopping.wait(0.01):
            due = int((time.monotonic() - began) * self._per_second)
            self.records.write(max(0, due - (self.records.sent - before)))


@dataclass(frozen=True)
class TopicContent:
    """How often a topic contains each numbered record."""

    times: Mapping[int, int]

    def lost(self, records: Numbered) -> set[int]:
        """Acknowledged records that are not there."""
        return records.acknowledged - self.times.keys()

    def duplicates(self) -> int:
        """The records beyond the first of each number."""
        return sum(self.times.values()) - len(self.times)


def count(bootstrap: str, topic: str) -> TopicContent:
    """Read the whole topic. Raises NotCaughtUp, KafkaException."""
    return TopicContent(Counter(int(record.value()) for record in read_to_end(bootstrap, topic)))


def readable_events(bootstrap: str) -> tuple[set[str], list[str]]:
    """The ids of all events that a read_committed reader gets, and the partitions whose end it did not reach in time.

    The cluster may be too small to decide anything. A reader that requests the end first gets OFFSET_NOT_AVAILABLE
    where the last replica became leader alone; one that only reads gets what was committed before. Records behind a
    transaction that cannot be decided now come later. Raises KafkaException for an error that does not pass.
    """
    partitions = [(topic, number) for topic in EVENT_TOPICS for number in partitions_of(bootstrap, topic)]
    without_end = set(partitions)
    with clients.reader(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in partitions])
        sizes = Counter(topic for topic, _ in partitions)
        records = _until_ends(consumer, without_end)
        events = (event_in_any_epoch(record, sizes[record.topic()]) for record in records)
        ids = {metadata.id for metadata in events if metadata is not None}
    return ids, [f"{topic}/{number}" for topic, number in sorted(without_end)]


def _until_ends(consumer: Consumer, without_end: set[tuple[str, int]]) -> Iterator[Message]:
    """Every record. A partition leaves `without_end` at its end."""
    until = time.monotonic() + READ_SECONDS
    while without_end and time.monotonic() < until:
        for record in consumer.consume(1000, 0.2):
            error = record.error()
            if error is None:
                yield record
            elif error.code() == KafkaError._PARTITION_EOF:
                without_end.discard((record.topic(), record.partition()))
            elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
