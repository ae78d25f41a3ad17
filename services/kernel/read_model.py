"""What a read model is, and what its source must guarantee. `projector.py` runs the transaction.

Three guards together make the rows exact, whatever the source does:
1. a batch carries the *seek* it was fetched under; what was fetched before the last seek is dropped;
2. a batch carries where the source stood before it; a start beyond the stored position is a `SourceGap`;
3. per entity, an event's version is the last one + 1; anything else is a `VersionGap`.
An event that cannot be applied parks its key: it and all later events of that key wait, in order, until
somebody decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import asyncpg

from services.kernel.envelope import Envelope, Malformed, read_headers
from services.kernel.serde import decode

Connection: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"
TopicPartition = tuple[str, int]
KEY_BYTES = 2000  # PostgreSQL's index entries end at 2704
_BIGINT, _INT = 2**63, 2**31


class Stopped(Exception):
    """The process must end: going on would make a read model wrong."""


class SourceGap(Stopped):
    """The source skipped records."""


class VersionGap(Stopped):
    """An entity's event is missing, or came twice."""


class EpochWentBack(Stopped):
    """An event of an older site epoch stands behind a newer one: two sites wrote this log."""


class PositionLost(Stopped):
    """Another process moved this read model's position: this one is a zombie."""


class TooManyParked(Stopped):
    """So many keys are parked that the code is at fault, not the events."""


# A timeout is an OSError.
DATABASE_AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
)
INFRASTRUCTURE = (
    Stopped,
    *DATABASE_AWAY,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
    asyncpg.SyntaxOrAccessError,
    MemoryError,
)


class Versioned(Protocol):
    """A row: whatever it holds, it says which version of its entity it was folded up to."""

    @property
    def version(self) -> int: ...


Row = TypeVar("Row", bound=Versioned)


class Store(Protocol[Row]):
    """Rows by key, in the tables of one schema."""

    async def load(self, connection: Connection, keys: Sequence[str]) -> Mapping[str, Row]: ...

    async def save(self, connection: Connection, rows: Mapping[str, Row]) -> None: ...


@dataclass(frozen=True)
class ReadModel(Generic[Row]):
    """`project(row, event) -> row` is pure; a key's first event finds the row None.

    `store(schema)` is the store on the tables that `ddl` makes in that schema. `stream` says what the keys
    are: order or stock.
    """

    name: str
    topics: tuple[str, ...]
    stream: str
    project: Callable[[Row | None, Envelope[Any]], Row]
    store: Callable[[str], Store[Row]]
    ddl: str


class Record(Protocol):
    """A record of the log, as any consumer gives it."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class Arrival(NamedTuple):
    """One record, decoded once for all read models.

    `key` is the record's, or a name for it where no column holds that. `event` is None where `error` says why
    it cannot be read; `version` is 0 where not even its headers can.
    """

    record: Record
    key: str
    version: int
    event: Envelope[Any] | None
    error: str


def arrive(record: Record) -> Arrival:
    """Never raises: whatever is wrong with a record, its key waits and the others go on."""
    key, version = (record.key or b"").decode(errors="backslashreplace"), 0
    name = _storable(key)
    try:
        metadata = read_headers(record.headers)
        if not (0 <= metadata.version < _BIGINT and 0 <= metadata.epoch < _INT):
            raise Malformed(f"no column holds version {metadata.version} of epoch {metadata.epoch}")
        version = metadata.version
        if name != key:
            raise Malformed("no column holds the key as it is")
        return Arrival(record, name, version, Envelope(metadata, decode(record.value or b"")), "")
    except Exception as error:
        return Arrival(record, name, version, None, repr(error))


def _storable(key: str) -> str:
    """The key as a column and its index can hold it: a parked key must be listed under some name."""
    key = key.replace("\0", "\\x00")
    whole = key.encode()
    if len(whole) <= KEY_BYTES:
        return key
    return f"{whole[:64].decode(errors='ignore')}...{sha256(whole).hexdigest()}"


@dataclass
class Batch:
    """A fetched run of one partition. `start` is where the source stood before it."""

    place: TopicPartition
    seek: int
    start: int
    records: Sequence[Record]
    _arrivals: list[Arrival] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.records[-1].offset + 1

    def arrivals(self, at: int) -> list[Arrival]:
        """From offset `at` on; decoded on first use."""
        if not self._arrivals:
            self._arrivals = [arrive(record) for record in self.records]
        if self._arrivals[0].record.offset >= at:
            return self._arrivals
        return [arrival for arrival in self._arrivals if arrival.record.offset >= at]


class Unprojectable(Exception):
    """An event that cannot be read or that `project` refused: it parks its key."""


def fold_rows(
    model: ReadModel[Row],
    rows: Mapping[str, Row],
    arrivals: Iterable[Arrival],
    skipped: frozenset[tuple[str, int]] = frozenset(),
) -> dict[str, Row]:
    """The rows that changed. `skipped` are (key, version) that somebody decided to leave out.

    Raises `VersionGap`, or `Unprojectable` at the first event that cannot be applied.
    """
    changed: dict[str, Row] = {}
    for arrival in arrivals:
        key, event = arrival.key, arrival.event
        if event is None:
            raise Unprojectable(arrival.error)
        row = changed.get(key) or rows.get(key)
        expected = (row.version if row is not None else 0) + 1
        while (key, expected) in skipped:
            expected += 1
        if event.metadata.version != expected:
            place = f"{arrival.record.topic}/{arrival.record.partition}/{arrival.record.offset}"
            raise VersionGap(
                f"{model.name} {key}: expected {expected}, got {event.metadata.version} at {place}"
            )
        try:
            changed[key] = model.project(row, event)
        except Exception as error:
            raise Unprojectable(repr(error)) from error
    return changed
