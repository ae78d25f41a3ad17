"""The thread that writes snapshots beside the hot transactions (`snapshots.py`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import structlog
from confluent_kafka import Producer

from contracts.kernel.records import Watermark
from contracts.topics import TOPICS
from services.kernel.log.reader import Positions
from services.kernel.log.transactions import LARGEST_RECORD, Aborted, Transactions, produce
from services.kernel.record.codec import decode, encode
from services.kernel.worker.entities import Partition
from services.kernel.worker.snapshots import (
    ABSENT,
    FORMAT_HEADER,
    OPEN,
    STOPPED,
    WATERMARK_KEY,
    Seen,
    StateCodec,
    seen,
    snapshot_of,
)

State = TypeVar("State")
Ends = Callable[[list[int]], Positions]

CHUNK = 500
LARGEST = LARGEST_RECORD - 2**16  # bytes; the record's key, headers and frame come on top

log = structlog.get_logger()


class SnapshotWriter(Generic[State]):
    """A thread that writes what changed since the last time, every `seconds`.

    `ends` returns offsets of the answers by partition, below which every change is, or will be before `quiet`
    is free again, in the partitions; `judged` decisions are honoured in them.
    """

    def __init__(
        self,
        service: str,
        partitions: dict[int, Partition[State]],
        codec: StateCodec[State],
        is_open: Callable[[State], bool],
        transactions: Transactions,
        ends: Ends,
        quiet: threading.Lock,
        failed: Callable[[BaseException], None],
        judged: int,
    ) -> None:
        self._service, self._judged = service, judged
        self._partitions, self._codec, self._is_open = partitions, codec, is_open
        self._transactions, self._quiet, self._failed = transactions, quiet, failed
        self.ends = ends
        self._topic = TOPICS[service].state
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._seconds = 0.0

    def start(self, seconds: float) -> None:
        self._seconds = seconds
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, then end."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._seconds):
                self.write()
            self.write()
        except BaseException as error:
            self._failed(error)

    def write(self) -> int:
        """Snapshot every entity changed since the last call; how many. Raises `OwnershipLost`."""
        with self._writing:
            return self._write()

    def _write(self) -> int:
        numbers = sorted(self._partitions)
        # The ends come first: a transaction in flight below them is published before `quiet` is free again,
        # so that every change before the ends is among the names taken then.
        answers = self.ends(numbers)
        with self._quiet:
            names = [(number, key) for number in numbers for key in self._partitions[number].changed()]
            marks = {number: self._watermark(number, answers[number]) for number in numbers}
        if not names:
            return 0
        written = 0
        try:
            for begin in range(0, len(names), CHUNK):
                written += self._write_chunk(names[begin : begin + CHUNK])
                time.sleep(0.002)  # let the loop's thread have the interpreter between chunks
            if written == len(names):
                self._transactions.run(lambda producer: self._mark(producer, marks), [], None)
        except Aborted as error:
            log.warning("snapshot_aborted", reason=str(error))
            with self._quiet:
                for number, key in names:
                    self._partitions[number].dirty.add(key)
            return 0
        return written

    def _write_chunk(self, names: Sequence[tuple[int, str]]) -> int:
        """How many are written: an entity too large for a record is said, and restored from its events."""
        with self._quiet:
            looked = [(number, key, self._look(self._partitions[number], key)) for number, key in names]
        made = [(number, key, *self._record(number, key, found)) for number, key, found in looked]
        records = [record for record in made if len(record[2] or b"") <= LARGEST]
        if len(records) < len(made):
            self._too_large(set(names) - {(number, key) for number, key, *_ in records})

        def stage(producer: Producer) -> None:
            for number, key, value, headers, recorded_at in records:
                produce(
                    producer,
                    self._topic,
                    value,
                    key,
                    partition=number,
                    headers=headers,
                    timestamp=recorded_at // 1000,
                )

        self._transactions.run(stage, [], None)
        with self._quiet:
            for number, key, value, headers, _ in records:
                partition = self._partitions[number]
                if value is not None and len(headers) == 1 and not partition.read.is_ahead(key):
                    partition.dirty.written(key, value)
        return len(records)

    def _too_large(self, names: set[tuple[int, str]]) -> None:
        log.error("snapshot_too_large", keys=sorted(key for _, key in names), most_bytes=LARGEST)
        with self._quiet:
            for number, key in names:
                self._partitions[number].dirty.add(key)

    def _look(self, partition: Partition[State], key: str) -> bytes | Seen[State]:
        """The snapshot as which the entity is held, or what one must say now."""
        return partition.evicted(key) or seen(partition, key)

    def _record(
        self, number: int, key: str, found: bytes | Seen[State]
    ) -> tuple[bytes | None, list[tuple[str, bytes]], int]:
        headers = [(FORMAT_HEADER, self._codec.format.encode())]
        stopped = key in self._partitions[number].read.stopped
        if stopped:
            headers.append(STOPPED)
        if isinstance(found, bytes):  # nothing open rests
            return found, headers, decode(found).recorded_at
        entity, answers = found.entity, found.answers
        recorded_at = entity.recorded_at or (answers[-1].recorded_at if answers else 0)
        if not entity.version and not answers and not stopped:
            return None, headers, recorded_at
        if not entity.version:
            headers.append(ABSENT)
        elif self._is_open(entity.state):
            headers.append(OPEN)
        return snapshot_of(self._topic, self._codec, found), headers, recorded_at

    def _watermark(self, number: int, answers: int) -> Watermark:
        read = self._partitions[number].read
        return Watermark(read.position, answers, read.epoch, self._judged)

    def _mark(self, producer: Producer, marks: dict[int, Watermark]) -> None:
        for number, mark in marks.items():
            produce(producer, self._topic, encode(self._topic, mark), WATERMARK_KEY, partition=number)
