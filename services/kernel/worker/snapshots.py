"""Snapshots: a cache of folds in the compacted `<service>.state`, written beside the hot transactions.

They are written under a transactional id of their own that the slot's next owner fences, so that a zombie
cannot put an old snapshot over a newer one. The watermark says: every change before these offsets is in a
snapshot. In memory, an entity that has not changed from one time to the next is then evicted.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple

import msgspec
import structlog
from confluent_kafka import Message, Producer

from contracts.kernel.records import Remembered, Snapshot, Watermark
from contracts.topics import TOPICS
from services.kernel.log.reader import Positions
from services.kernel.log.transactions import LARGEST_RECORD, Aborted, Transactions, produce
from services.kernel.model.decider import State
from services.kernel.model.map import Map, content_of
from services.kernel.record.codec import Undecodable, decode, encode
from services.kernel.worker.entities import Entity, LoadedEntity, Partition

WATERMARK_KEY = "#watermark"  # no entity is called so: ids begin with a letter or a digit
OLD_WATERMARK_KEY = "watermark"
OPEN = ("open", b"1")
ABSENT = ("absent", b"1")  # of the name nothing is known but refusals, or that its stream stopped
STOPPED = ("stopped", b"1")  # it is folded anew at every start: a decision or newer code may let it go on
FORMAT_HEADER = "format"
# Incremented when snapshots contain something new: those that lack it are discarded.
SNAPSHOT_GENERATION = b"3"  # outcomes have their epoch
Ends = Callable[[list[int]], Positions]
CHUNK = 500
LARGEST = LARGEST_RECORD - 2**16  # bytes; the record's key, headers and frame come on top
log = structlog.get_logger()


class StateCodec(Generic[State]):
    """States to bytes and back, for snapshots only: a cache, private to one version of the code."""

    def __init__(self, states: Sequence[type]) -> None:
        self._decoders: dict[str, msgspec.msgpack.Decoder[State]] = {
            state.__name__: msgspec.msgpack.Decoder(state, dec_hook=_decoded) for state in states
        }
        self._encode = msgspec.msgpack.Encoder(enc_hook=_encodable).encode
        shapes = msgspec.json.schema_components(list(states), schema_hook=_schema)
        shape = msgspec.json.encode(_without_docstrings(shapes), order="deterministic")
        self.format = hashlib.blake2b(SNAPSHOT_GENERATION + shape, digest_size=8).hexdigest()

    def encode(self, state: State) -> bytes:
        return type(state).__name__.encode() + b"\0" + self._encode(state)

    def decode(self, data: bytes) -> State:
        """Raises msgspec.ValidationError or KeyError where `data` is not of this format."""
        name, _, body = data.partition(b"\0")
        state: State = self._decoders[name.decode()].decode(body)
        return state


# Sorts the entries of a map: equal states have equal snapshots, whatever the process's hash seed.
_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode


def _encodable(value: Any) -> msgspec.Raw:
    if isinstance(value, Map):
        return msgspec.Raw(_encode_sorted(content_of(value)))
    raise NotImplementedError(f"no snapshot can hold a {type(value).__name__}")


def _decoded(kind: type, content: dict[str, int]) -> Map:
    if kind is Map:
        return Map(content)
    raise NotImplementedError(f"no snapshot can hold a {kind.__name__}")


def _without_docstrings(schema: Any) -> Any:
    """The shape alone: msgspec puts a class's docstring into its schema as `description`."""
    match schema:
        case dict():
            return {
                key: _without_docstrings(value)
                for key, value in schema.items()
                if not (key == "description" and isinstance(value, str))
            }
        case list() | tuple():
            return [_without_docstrings(item) for item in schema]
        case _:
            return schema


def _schema(kind: type) -> dict[str, Any]:
    if kind is Map:
        return msgspec.json.schema(dict[str, int])
    raise NotImplementedError(f"no snapshot can hold a {kind.__name__}")


class Seen(NamedTuple, Generic[State]):
    """An entity at one moment, with what its snapshot must contain."""

    entity: Entity[State]
    outcomes: Sequence[Remembered]
    read_to: int
    unread: int


def snapshot_of(topic: str, codec: StateCodec[State], seen: Seen[State]) -> bytes:
    """The record that `SnapshotReader.load` reads."""
    entity, outcomes, read_to, unread = seen
    about = codec.format, entity.version, entity.recorded_at
    return encode(topic, Snapshot(*about, codec.encode(entity.state), tuple(outcomes), read_to, unread))


def seen(partition: Partition[State], key: str) -> Seen[State]:
    """Call it while nobody changes the partition."""
    return Seen(partition.get(key), partition.outcomes.of(key), *partition.read.snapshot_taken(key))


class SnapshotReader(Generic[State]):
    """Reads `<service>.state` into partitions; entities stay raw until they are needed."""

    def __init__(self, codec: StateCodec[State]) -> None:
        self._codec = codec
        self.open_entities: set[tuple[int, str]] = set()
        self.stopped: set[tuple[int, str]] = set()
        self.watermarks: dict[int, Watermark] = {}

    def take(self, record: Message, partition: Partition[State]) -> None:
        """One usable record of the state topic."""
        key, value = record.key().decode(errors="replace"), record.value()
        number = record.partition()
        if key == WATERMARK_KEY:
            self._watermark(number, value)
            return
        headers = record.headers() or ()
        if key == OLD_WATERMARK_KEY and value is not None and not headers:
            return  # written before it had a name that no entity can have
        partition.restore(key, value)
        if ABSENT in headers:
            partition.get(key)
            if not partition.outcomes.of(key):
                partition.dirty.add(key)
        partition.recorded_at = max(partition.recorded_at, (record.timestamp()[1] + 1) * 1000)
        for header, keys in ((OPEN, self.open_entities), (STOPPED, self.stopped)):
            if header in headers:
                keys.add((number, key))
            else:
                keys.discard((number, key))

    def _watermark(self, number: int, value: bytes | None) -> None:
        """A watermark of an older version lacks the open epoch and cannot be used."""
        try:
            mark = decode(value)
        except Undecodable:
            return
        if isinstance(mark, Watermark) and mark.epoch:
            self.watermarks[number] = mark

    def is_ours(self, record: Message) -> bool:
        """Whether this is a snapshot or a watermark, of whatever code."""
        return record.key().decode(errors="replace") in (WATERMARK_KEY, OLD_WATERMARK_KEY) or (
            record.value() is None or any(name == FORMAT_HEADER for name, _ in record.headers() or ())
        )

    def usable(self, record: Message) -> bool:
        """Whether this record is not a snapshot of code whose states have another shape."""
        key, headers = record.key().decode(errors="replace"), record.headers() or ()
        return (
            key == WATERMARK_KEY
            or record.value() is None
            or (key == OLD_WATERMARK_KEY and not headers)
            or (FORMAT_HEADER, self._codec.format.encode()) in headers
        )

    def drop(self, number: int) -> None:
        """Begin this partition anew: none of its snapshots can be used."""
        self.watermarks.pop(number, None)
        self.open_entities = {at for at in self.open_entities if at[0] != number}
        self.stopped = {at for at in self.stopped if at[0] != number}

    def load(self, value: bytes) -> LoadedEntity[State]:
        snapshot: Snapshot = decode(value)
        entity = Entity(self._codec.decode(snapshot.state), snapshot.version, snapshot.recorded_at)
        return LoadedEntity(entity, snapshot.answers, snapshot.read_to, snapshot.unread)


class SnapshotWriter(Generic[State]):
    """A thread that writes what changed since the last time, every `seconds`.

    `ends` returns offsets of the recorded outcomes by partition, below which every change is, or will be before `lock`
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
        lock: threading.Lock,
        failed: Callable[[BaseException], None],
        judged: int,
    ) -> None:
        self._service, self._judged = service, judged
        self._partitions, self._codec, self._is_open = partitions, codec, is_open
        self._transactions, self._lock, self._failed = transactions, lock, failed
        self.ends, self.abandoned = ends, False
        self._topic = TOPICS[service].state
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

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
        # The ends come first: a transaction in flight below them is published before `lock` is free again,
        # so that every change before the ends is among the names taken then.
        outcomes = self.ends(numbers)
        with self._lock:
            if self.abandoned:
                return 0
            names = [(number, key) for number in numbers for key in self._partitions[number].changed()]
            marks = {number: self._watermark(number, outcomes[number]) for number in numbers}
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
            with self._lock:
                for number, key in names:
                    self._partitions[number].dirty.add(key)
            return 0
        return written

    def _write_chunk(self, names: Sequence[tuple[int, str]]) -> int:
        """Returns how many are written. An entity too large for a record is logged, and restored from its events."""
        with self._lock:
            partitions = [(number, key, self._partitions[number]) for number, key in names]
            looked = [(number, key, own.evicted(key) or seen(own, key)) for number, key, own in partitions]
        made = [(number, key, *self._record(number, key, entry)) for number, key, entry in looked]
        records = [record for record in made if len(record[2] or b"") <= LARGEST]
        if len(records) < len(made):
            self._too_large(set(names) - {(number, key) for number, key, *_ in records})

        def stage(producer: Producer) -> None:
            for number, key, value, headers, recorded_at in records:
                about = {"partition": number, "headers": headers, "timestamp": recorded_at // 1000}
                produce(producer, self._topic, value, key, **about)

        self._transactions.run(stage, [], None)
        with self._lock:
            for number, key, value, headers, _ in records:
                partition = self._partitions[number]
                if value is not None and len(headers) == 1 and not partition.read.is_ahead(key):
                    partition.dirty.written(key, value)
        return len(records)

    def _too_large(self, names: set[tuple[int, str]]) -> None:
        log.error("snapshot_too_large", keys=sorted(key for _, key in names), most_bytes=LARGEST)
        with self._lock:
            for number, key in names:
                self._partitions[number].dirty.add(key)

    def _record(
        self, number: int, key: str, entry: bytes | Seen[State]
    ) -> tuple[bytes | None, list[tuple[str, bytes]], int]:
        headers = [(FORMAT_HEADER, self._codec.format.encode())]
        stopped = key in self._partitions[number].read.stopped
        if stopped:
            headers.append(STOPPED)
        if isinstance(entry, bytes):  # an entity with pending commands is never evicted
            return entry, headers, decode(entry).recorded_at
        entity, outcomes = entry.entity, entry.outcomes
        recorded_at = entity.recorded_at or (outcomes[-1].recorded_at if outcomes else 0)
        if not entity.version and not outcomes and not stopped:
            return None, headers, recorded_at
        if not entity.version:
            headers.append(ABSENT)
        elif self._is_open(entity.state):
            headers.append(OPEN)
        return snapshot_of(self._topic, self._codec, entry), headers, recorded_at

    def _watermark(self, number: int, outcomes: int) -> Watermark:
        read = self._partitions[number].read
        return Watermark(read.position, outcomes, read.epoch, self._judged)

    def _mark(self, producer: Producer, marks: dict[int, Watermark]) -> None:
        for number, mark in marks.items():
            produce(producer, self._topic, encode(self._topic, mark), WATERMARK_KEY, partition=number)
