"""Snapshots: a cache of folds in the compacted `<service>.state`, written beside the hot transactions.

They are written under a transactional id of their own that the slot's next owner fences, so that a zombie
cannot put an old snapshot over a newer one. The watermark says: every change before these offsets is in a
snapshot. In memory, what stays as it is from one time to the next is then held as its snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from confluent_kafka import Message

from contracts.kernel.records import Remembered, Snapshot, Watermark
from services.kernel.model.map import Map, content_of
from services.kernel.record.codec import Undecodable, decode, encode
from services.kernel.worker.entities import Partition
from services.kernel.worker.entity import Entity, LoadedEntity

State = TypeVar("State")

WATERMARK_KEY = "#watermark"  # no entity is called so: ids begin with a letter or a digit
OLD_WATERMARK_KEY = "watermark"
OPEN = ("open", b"1")
ABSENT = ("absent", b"1")  # of the name nothing is known but refusals, or that its stream stopped
STOPPED = ("stopped", b"1")  # it is folded anew at every start: a decision or newer code may let it go on
FORMAT_HEADER = "format"
# Raised when snapshots say something new: those that lack it are discarded.
SNAPSHOT_GENERATION = b"2"
# Formats whose name once covered the docstrings of the states too, by the name without: workers of both versions read
# each other's snapshots. A state of another shape is not in this table.
NAMED_WITH_DOCSTRINGS = {"8dc142c9712d0a4c": "9ef111c0bdaa2402", "570038325de2fe7d": "8fdf6271a8dd6b59"}


class StateCodec(Generic[State]):
    """States to bytes and back, for snapshots only: a cache, private to one version of the code."""

    def __init__(self, states: Sequence[type]) -> None:
        self._decoders: dict[str, msgspec.msgpack.Decoder[State]] = {
            state.__name__: msgspec.msgpack.Decoder(state, dec_hook=_decoded) for state in states
        }
        self._encode = msgspec.msgpack.Encoder(enc_hook=_encodable).encode
        shapes = msgspec.json.schema_components(list(states), schema_hook=_schema)
        shape = msgspec.json.encode(_without_docstrings(shapes), order="deterministic")
        name = hashlib.blake2b(SNAPSHOT_GENERATION + shape, digest_size=8).hexdigest()
        self.format = NAMED_WITH_DOCSTRINGS.get(name, name)

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
    """An entity as it stood at one moment, with what its snapshot must say."""

    entity: Entity[State]
    answers: Sequence[Remembered]
    read_to: int
    unread: int


def snapshot_of(topic: str, codec: StateCodec[State], seen: Seen[State]) -> bytes:
    """The record that `SnapshotReader.load` reads."""
    entity, answers, read_to, unread = seen
    about = codec.format, entity.version, entity.recorded_at
    return encode(topic, Snapshot(*about, codec.encode(entity.state), tuple(answers), read_to, unread))


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
        key, value = record.key().decode(), record.value()
        number = record.partition()
        if key == WATERMARK_KEY:
            self._watermark(number, value)
            return
        headers = record.headers() or ()
        if key == OLD_WATERMARK_KEY and value is not None and not headers:
            return  # written before it was told apart from an entity of that name
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
        """One of an older version does not say which epoch is open there, and cannot be used."""
        try:
            mark = decode(value)
        except Undecodable:
            return
        if isinstance(mark, Watermark) and mark.epoch:
            self.watermarks[number] = mark

    def is_ours(self, record: Message) -> bool:
        """Whether this is a snapshot or a watermark, of whatever code."""
        return record.key().decode() in (WATERMARK_KEY, OLD_WATERMARK_KEY) or (
            record.value() is None or any(name == FORMAT_HEADER for name, _ in record.headers() or ())
        )

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
        self.stopped = {at for at in self.stopped if at[0] != number}

    def load(self, value: bytes) -> LoadedEntity[State]:
        snapshot: Snapshot = decode(value)
        entity = Entity(self._codec.decode(snapshot.state), snapshot.version, snapshot.recorded_at)
        return LoadedEntity(entity, snapshot.answers, snapshot.read_to, snapshot.unread)
