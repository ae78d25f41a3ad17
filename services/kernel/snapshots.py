"""Snapshots: a cache of folds in the compacted `<service>.state`, written beside the hot transactions.

They are written under a transactional id of their own that the slot's next owner fences, so that a zombie
cannot put an old snapshot over a newer one. The watermark says: every change before these offsets is in a
snapshot. In memory, what stays as it is from one time to the next is then held as its snapshot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import structlog
from confluent_kafka import Message, Producer

from contracts.kernel.records import Remembered, Snapshot, Watermark
from services.kernel.aggregate import StateCodec
from services.kernel.entities import Entity, Partition
from services.kernel.log_reader import Positions
from services.kernel.serde import decode, encode
from services.kernel.transactions import LARGEST_RECORD, Aborted, Transactions, produce

State = TypeVar("State")
Ends = Callable[[list[int]], tuple[Positions, Positions]]

CHUNK = 500
LARGEST = LARGEST_RECORD - 2**16  # bytes; the record's key, headers and frame come on top
WATERMARK_KEY = "#watermark"  # no entity is called so: ids begin with a letter or a digit
OLD_WATERMARK_KEY = "watermark"
OPEN = ("open", b"1")
ABSENT = ("absent", b"1")  # of the name nothing is known but refusals
FORMAT_HEADER = "format"

log = structlog.get_logger()


def snapshot_of(
    topic: str, codec: StateCodec[State], entity: Entity[State], answers: Sequence[Remembered]
) -> bytes:
    """The record that `SnapshotReader.thaw` reads."""
    state = codec.encode(entity.state)
    return encode(topic, Snapshot(codec.format, entity.version, entity.recorded_at, state, tuple(answers)))


class SnapshotReader(Generic[State]):
    """Reads `<service>.state` into partitions; entities stay raw until they are needed."""

    def __init__(self, codec: StateCodec[State]) -> None:
        self._codec = codec
        self.open_entities: set[tuple[int, str]] = set()
        self.watermarks: dict[int, Watermark] = {}

    def take(self, record: Message, partition: Partition[State]) -> None:
        """One usable record of the state topic."""
        key, value = record.key().decode(), record.value()
        number = record.partition()
        if key == WATERMARK_KEY:
            if value is not None:
                self.watermarks[number] = decode(value)
            return
        headers = record.headers() or ()
        if key == OLD_WATERMARK_KEY and value is not None and not headers:
            return  # written before it was told apart from an entity of that name
        partition.freeze(key, value)
        if ABSENT in headers:
            partition.get(key)
            if not partition.answers(key):
                partition.unwritten(key)
        partition.recorded_at = max(partition.recorded_at, (record.timestamp()[1] + 1) * 1000)
        if OPEN in headers:
            self.open_entities.add((number, key))
        else:
            self.open_entities.discard((number, key))

    def usable(self, record: Message) -> bool:
        """Whether this record is not a snapshot of code whose states have another shape."""
        return (
            record.key().decode() == WATERMARK_KEY
            or record.value() is None
            or (record.key().decode() == OLD_WATERMARK_KEY and not record.headers())
            or (FORMAT_HEADER, self._codec.format.encode()) in (record.headers() or ())
        )

    def drop(self, number: int) -> None:
        """Begin this partition anew: none of its snapshots can be used."""
        self.watermarks.pop(number, None)
        self.open_entities = {at for at in self.open_entities if at[0] != number}

    def thaw(self, value: bytes) -> tuple[Entity[State], Iterable[Remembered]]:
        snapshot: Snapshot = decode(value)
        state = self._codec.decode(snapshot.state)
        return Entity(state, snapshot.version, snapshot.recorded_at), snapshot.answers


class SnapshotWriter(Generic[State]):
    """A thread that writes what changed since the last time, every `seconds`.

    `ends` answers offsets of events and answers by partition, below which every change is, or will be before
    `quiet` is free again, in the partitions.
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
    ) -> None:
        self._service = service
        self._partitions, self._codec, self._is_open = partitions, codec, is_open
        self._transactions, self._quiet, self._failed = transactions, quiet, failed
        self.ends = ends
        self._topic = f"{service}.state"
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
        events, answers = self.ends(numbers)
        with self._quiet:
            names = [(number, key) for number in numbers for key in self._partitions[number].changed()]
        if not names:
            return 0
        written = 0
        try:
            for begin in range(0, len(names), CHUNK):
                written += self._write_chunk(names[begin : begin + CHUNK])
                time.sleep(0.002)  # let the loop's thread have the interpreter between chunks
            if written == len(names):
                self._transactions.run(lambda producer: self._mark(producer, events, answers), [], None)
        except Aborted as error:
            log.warning("snapshot_aborted", reason=str(error))
            with self._quiet:
                for number, key in names:
                    self._partitions[number].unwritten(key)
            return 0
        return written

    def _write_chunk(self, names: Sequence[tuple[int, str]]) -> int:
        """How many are written: an entity too large for a record is said, and restored from its events."""
        made = [(number, key, *self._record(self._partitions[number], key)) for number, key in names]
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
                if value is not None and OPEN not in headers and ABSENT not in headers:
                    self._partitions[number].written(key, value)
        return len(records)

    def _too_large(self, names: set[tuple[int, str]]) -> None:
        log.error("snapshot_too_large", keys=sorted(key for _, key in names), most_bytes=LARGEST)
        with self._quiet:
            for number, key in names:
                self._partitions[number].unwritten(key)

    def _record(
        self, partition: Partition[State], key: str
    ) -> tuple[bytes | None, list[tuple[str, bytes]], int]:
        headers = [(FORMAT_HEADER, self._codec.format.encode())]
        if (resting := partition.resting(key)) is not None:  # nothing open rests
            return resting, headers, decode(resting).recorded_at
        entity, answers = partition.get(key), partition.answers(key)
        recorded_at = entity.recorded_at or (answers[-1].recorded_at if answers else 0)
        if not entity.version and not answers:
            return None, headers, recorded_at
        if not entity.version:
            headers.append(ABSENT)
        elif self._is_open(entity.state):
            headers.append(OPEN)
        return snapshot_of(self._topic, self._codec, entity, answers), headers, recorded_at

    def _mark(self, producer: Producer, events: dict[int, int], answers: dict[int, int]) -> None:
        for number in self._partitions:
            mark = encode(self._topic, Watermark(events[number], answers[number]))
            produce(producer, self._topic, mark, WATERMARK_KEY, partition=number)
