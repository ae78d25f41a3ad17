"""An aggregate as a worker runs it: its name, rules, conversations and the shape of its states."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from services.kernel.model.decider import Decider
from services.kernel.model.map import Map, content_of
from services.kernel.model.process import Process

Command = TypeVar("Command")
State = TypeVar("State")
Event = TypeVar("Event")


@dataclass(frozen=True)
class Aggregate(Generic[Command, State, Event]):
    """`name` gives the topics (`<name>.commands`, `<name>.events` …); `states` are all classes that `State`
    may be."""

    name: str
    decider: Decider[Command, State, Event]
    process: Process[State, Event]
    states: Sequence[type]


# Raised when snapshots say something new: those that lack it are discarded.
SNAPSHOT_GENERATION = b"2"


class StateCodec(Generic[State]):
    """States to bytes and back, for snapshots only: a cache, private to one version of the code."""

    def __init__(self, states: Sequence[type]) -> None:
        self._decoders: dict[str, msgspec.msgpack.Decoder[State]] = {
            state.__name__: msgspec.msgpack.Decoder(state, dec_hook=_decoded) for state in states
        }
        self._encode = msgspec.msgpack.Encoder(enc_hook=_encodable).encode
        shapes = msgspec.json.schema_components(list(states), schema_hook=_schema)
        shape = msgspec.json.encode(shapes, order="deterministic")
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


def _schema(kind: type) -> dict[str, Any]:
    if kind is Map:
        return msgspec.json.schema(dict[str, int])
    raise NotImplementedError(f"no snapshot can hold a {kind.__name__}")
