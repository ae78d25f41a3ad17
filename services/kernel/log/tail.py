"""How much of the log is left behind a position, asked of the log itself.

Offsets cannot tell: markers and aborted records close the log, and they are no events. Only a reader of what
is committed can tell. It reads on from the position: when the partition ends before any record, nothing is
left. Whoever asks need not be the process that reads, so the result is true while that process is dead.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from services.kernel.errors import KernelError
from services.kernel.log import clients
from services.kernel.log.reader import what_is_there

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""
WINDOW = 500  # records that are counted one by one


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
            found = self._connected().list_topics(timeout=seconds).topics
        except KafkaException as error:
            raise self._lost(error.args[0].str()) from error
        return [(topic, number) for topic in topics if topic in found for number in found[topic].partitions]

    def behind(
        self, positions: Collection[tuple[Partition, int]], seconds: float
    ) -> Mapping[tuple[Partition, int], Behind]:
        """What is left behind each position (a partition and its next offset). Raises `NotKnown`."""
        until = time.monotonic() + seconds
        todo, found = set(positions), dict[tuple[Partition, int], Behind]()
        try:
            while todo:
                lowest = dict(sorted(todo, reverse=True))
                windows = self._read(lowest, until)
                for partition, offset in list(todo):
                    if (behind := windows[partition].behind(offset)) is not None:
                        found[partition, offset] = behind
                        todo.discard((partition, offset))
        except KafkaException as error:
            raise self._lost(error.args[0].str()) from error
        return found

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
            partition: _Window(found, self._end(partition, until) if partition in more else None)
            for partition, found in records.items()
        }

    def _is_record(self, record: Message, start: int) -> bool:
        """Raises `NotKnown` where the client was sent elsewhere, because the log does not hold the start."""
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
            self._consumer = clients.reader(
                self._bootstrap,
                # a position that retention has passed: what is left begins at the first record
                {
                    "fetch.wait.max.ms": 10,
                    "fetch.message.max.bytes": 128 * 1024,
                    "queued.min.messages": WINDOW,
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 0,
                },
            )
        return self._consumer

    def _lost(self, reason: str) -> NotKnown:
        """A new client asks next time: after a silence the whole broker and its log may be others."""
        self.close()
        return NotKnown(reason)
