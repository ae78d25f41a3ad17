"""The log from given positions up to given ends, for a rebuild: no group, no waiting for more."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from services.projection.engine.parked_keys import StoredRecord
from services.projection.engine.read_model import Batch
from services.projection.engine.read_model import TopicPartition as Place
from services.projection.engine.replaced_log import no_longer_there

FETCH = 5000
RUN_BYTES = 8 * 2**20  # of values; decoded, an order of many lines takes twenty times as much
WAIT_SECONDS = 0.5
STALL_SECONDS = 60.0


class SourceUnreachable(TimeoutError):
    """Nothing came for too long, though there is more."""


class Runs:
    """Reads committed records, at most `most` or (but for the last one) `RUN_BYTES` of a partition at a time.

    An end is a position that a read model has stored: one after a record.
    """

    def __init__(self, kafka: str, starts: Mapping[Place, int], most: int = FETCH) -> None:
        self.next = dict(starts)
        self._most = most
        self._fetched: dict[Place, deque[StoredRecord]] = {place: deque() for place in starts}
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "daybook-rebuild-without-a-group",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "queued.min.messages": 100_000,
                "check.crcs": False,
                "log_level": 3,
            }
        )
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])

    def __enter__(self) -> Runs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._consumer.close()

    def fetch(self, ends: Mapping[Place, int], seek: int) -> list[Batch]:
        """The next run of each partition, none at or beyond its end; empty when all ends are reached.

        Blocks. Raises `AnotherLog`, `SourceUnreachable`, KafkaException.
        """
        deadline = time.monotonic() + STALL_SECONDS
        while any(self.next[place] < end for place, end in ends.items()):
            starts = dict(self.next)
            runs = {place: self._take(place, end) for place, end in ends.items()}
            if any(runs.values()):
                return [Batch(place, seek, starts[place], run) for place, run in runs.items() if run]
            if time.monotonic() > deadline:
                raise SourceUnreachable(f"at {self.next}, and nothing more came for {STALL_SECONDS:g} s")
            self._consume()
        return []

    def _take(self, place: Place, end: int) -> list[StoredRecord]:
        fetched = self._fetched[place]
        run: list[StoredRecord] = []
        size = 0
        while fetched and fetched[0].offset < end and len(run) < self._most and size < RUN_BYTES:
            run.append(record := fetched.popleft())
            size += len(record.value or b"")
        if run:
            self.next[place] = run[-1].offset + 1
        return run

    def _consume(self) -> None:
        for message in self._consumer.consume(self._most, WAIT_SECONDS):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    place = message.topic(), message.partition()
                    raise no_longer_there({place: self.next[place]})
                if not error.retriable():
                    raise KafkaException(error)
                continue
            where = (message.topic(), message.partition(), message.offset())
            record = StoredRecord(*where, message.key(), message.value(), message.headers() or ())
            self._fetched[record.topic, record.partition].append(record)
