"""Applies the log from given positions up to given ends, for a rebuild: without a consumer group."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assignment

from services.kernel.log import clients
from services.projection import ProjectionError
from services.projection.engine.position import log_truncated
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Batch, Record, TooManyParked, TopicPartition, record_of

FETCH = 5000
RUN_BYTES = 8 * 2**20  # of values; decoded, an order of many lines takes twenty times as much
WAIT_SECONDS = 0.5
STALL_SECONDS = 60.0

Progress = Callable[[int, int], None]
"""Receives the offsets done and in total."""


class SourceUnreachable(ProjectionError, TimeoutError):
    """No record arrived for too long, although the log has more."""


class BatchReader(Protocol):
    """Reads the log in order: `fetch` returns the next batches below `ends`, none at the end."""

    def fetch(self, ends: Mapping[TopicPartition, int], seek: int) -> list[Batch]: ...


class Runs:
    """Reads committed records, at most `most` or (but for the last one) `RUN_BYTES` of a partition at a time. An end
    is a stored position of a read model: the offset after a record."""

    def __init__(self, kafka: str, starts: Mapping[TopicPartition, int], most: int = FETCH) -> None:
        self.next = dict(starts)
        self._most = most
        self._fetched: dict[TopicPartition, deque[Record]] = {tp: deque() for tp in starts}
        self._consumer = clients.follower(
            kafka,
            [Assignment(*tp, offset) for tp, offset in starts.items()],
            {"group.id": "daybook-rebuild-without-a-group", "auto.offset.reset": "error"},
        )

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def fetch(self, ends: Mapping[TopicPartition, int], seek: int) -> list[Batch]:
        """Returns the next run of each partition, none at or beyond its end; empty when all ends are reached. Blocks.
        Raises `LogReplaced`, `SourceUnreachable`, KafkaException."""
        deadline = time.monotonic() + STALL_SECONDS
        while any(self.next[tp] < end for tp, end in ends.items()):
            starts = dict(self.next)
            runs = {tp: self._next_run(tp, end) for tp, end in ends.items()}
            if any(runs.values()):
                return [Batch(tp, seek, starts[tp], run) for tp, run in runs.items() if run]
            if time.monotonic() > deadline:
                raise SourceUnreachable(f"at {self.next}, and no record arrived for {STALL_SECONDS:g} s")
            self._consume()
        return []

    def _next_run(self, tp: TopicPartition, end: int) -> list[Record]:
        fetched = self._fetched[tp]
        run: list[Record] = []
        size = 0
        while fetched and fetched[0].offset < end and len(run) < self._most and size < RUN_BYTES:
            run.append(record := fetched.popleft())
            size += len(record.value or b"")
        if run:
            self.next[tp] = run[-1].offset + 1
        return run

    def _consume(self) -> None:
        for message in self._consumer.consume(self._most, WAIT_SECONDS):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    tp = message.topic(), message.partition()
                    raise log_truncated({tp: self.next[tp]})
                if not error.retriable():
                    raise KafkaException(error)
                continue
            record = record_of(message)
            self._fetched[record.topic, record.partition].append(record)


async def catch_up(
    projector: Projector,
    reader: BatchReader,
    ends: Mapping[TopicPartition, int],
    *,
    leave_parked: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> dict[str, int]:
    """Applies the batches up to `ends`; returns the events by read model. With `leave_parked`, a read model that has
    to park a key stays where it is.

    A thread reads and decodes the next batches while PostgreSQL writes the previous ones. All read models of the
    projector begin at the same positions, with the same decisions.
    """
    counts = dict.fromkeys(projector.models, 0)
    active, reached = set(counts), dict.fromkeys(ends, 0)
    first = next(iter(counts))
    epochs = {tp: at.epoch for positions in projector.positions.values() for tp, at in positions.items()}

    def next_batches() -> list[Batch]:
        batches = reader.fetch(ends, projector.seek)
        for batch in batches:
            epochs[batch.tp] = projector.read(first, batch, batch.start, epochs[batch.tp]).epoch
        return batches

    reading = asyncio.create_task(asyncio.to_thread(next_batches))
    try:
        while (batches := await reading) and active:
            reading = asyncio.create_task(asyncio.to_thread(next_batches))
            for name in sorted(active):
                topics = projector.models[name].topics
                own = [batch for batch in batches if batch.tp[0] in topics]
                try:
                    counts[name] += await projector.apply(name, own)
                except TooManyParked:
                    if not leave_parked:
                        raise
                    active.discard(name)
            reached |= {batch.tp: batch.next_offset for batch in batches}
            progress(sum(reached.values()), sum(ends.values()))
    finally:
        await asyncio.wait({reading})  # do not close the reader while a thread reads
    return counts
