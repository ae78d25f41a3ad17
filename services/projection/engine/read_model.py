"""What a read model is, and what its source must guarantee. `projector.py` runs the transaction.

Two guards together make the rows exact, whatever the source does:
1. a batch carries the *seek* it was fetched under; what was fetched before the last seek is dropped;
2. a batch carries where the source stood before it; a start beyond the stored position is a `SourceGap`.
`log_rule.py` says what each record is. Foreign records are passed over. An event that forks its stream, that
cannot be read or that cannot be applied parks its key: it and all later events of that key wait, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import asyncpg

from services.kernel.log.rule import FIRST_EPOCH, Event, Foreign, Journal, epoch_after, kind_of
from services.kernel.record.codec import decode
from services.kernel.record.envelope import Envelope, Metadata

Connection: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"
TopicPartition = tuple[str, int]


class Stopped(Exception):
    """The process must end: going on would make a read model wrong."""


class SourceGap(Stopped):
    """The source skipped records."""


class PositionLost(Stopped):
    """Another process moved this read model's position: this one is a zombie."""


class OtherCode(Stopped):
    """The tables were made by other code than this process runs."""


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


Lineage = tuple[tuple[int, int], ...]
"""(site epoch, the first version written under it), ascending."""

Row = TypeVar("Row")


class Versioned(NamedTuple, Generic[Row]):
    """A row and how far its entity's events are folded into it, which the engine manages.

    `version` is that of the last event, `event_id` its id, `changed_at` its recorded time (micros UTC). A
    store may keep the version alone.
    """

    row: Row
    version: int
    event_id: str = ""
    lineage: Lineage = ()
    changed_at: int = 0


Fold: TypeAlias = Callable[[Row | None, Any, Metadata], Row]
"""`fold(row, event, metadata) -> row`: pure; a key's first event finds the row None."""


class Store(Protocol[Row]):
    """Rows by key, in the tables of one schema."""

    async def load(self, connection: Connection, keys: Sequence[str]) -> Mapping[str, Versioned[Row]]: ...

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[Row]]) -> None: ...

    async def forget(self, connection: Connection, key: str, row: Row) -> None:
        """Removes what a key's events contributed; `row` is what they make of nothing."""


StoreIn: TypeAlias = Callable[[str], Store[Row]]
"""The store on the tables of the schema that it is given."""


@dataclass(frozen=True)
class ReadModel(Generic[Row]):
    """`ddl` makes the tables that `store` reads and writes; `stream` is what the keys are: order or stock.

    `fingerprint` names the code and the tables: where it differs, rows may differ.
    """

    name: str
    topics: tuple[str, ...]
    stream: str
    fold: Fold[Row]
    store: StoreIn[Row]
    ddl: str
    fingerprint: str


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
    """An event of the log, decoded once for all read models.

    `event` is None where `error` says why its body cannot be read.
    """

    record: Record
    key: str
    kind: Event
    event: Envelope[Any] | None
    error: str


def arrive(record: Record, kind: Event) -> Arrival:
    """Never raises: whatever is wrong with a body, its key waits and the others go on."""
    try:
        return Arrival(record, kind.metadata.subject, kind, Envelope(kind.metadata, decode(record.value)), "")
    except Exception as error:
        return Arrival(record, kind.metadata.subject, kind, None, repr(error))


class ForeignRecord(NamedTuple):
    """Where a foreign record stands, and which of `log_rule.REASONS` makes it foreign."""

    topic: str
    partition: int
    offset: int
    reason: str


class Contents(NamedTuple):
    """What the records of a batch are, and the epoch that is open behind them."""

    arrivals: Sequence[Arrival]
    foreign: Sequence[ForeignRecord]
    epoch: int


@dataclass
class Batch:
    """A fetched run of one partition. `start` is where the source stood before it.

    `given` are its contents where they are known: all events, of a copy of the log that holds no others.
    """

    place: TopicPartition
    seek: int
    start: int
    records: Sequence[Record]
    given: Contents | None = None
    _read: dict[tuple[int, int, int], tuple[Journal, Contents]] = field(default_factory=dict)

    @property
    def next_offset(self) -> int:
        return self.records[-1].offset + 1

    def read(self, at: int, epoch: int, partitions: int, journal: Journal) -> Contents:
        """What the records from offset `at` on are, where `epoch` is open before them (0: nothing was read).

        Read and decoded once for all read models that stand there.
        """
        if self.given is not None:
            arrivals = [arrival for arrival in self.given.arrivals if arrival.record.offset >= at]
            return self.given._replace(arrivals=arrivals)
        asked = (max(at, self.start), epoch or FIRST_EPOCH, id(journal))
        if asked not in self._read:
            self._read[asked] = journal, self._classify(*asked[:2], partitions, journal)
        return self._read[asked][1]

    def _classify(self, at: int, epoch: int, partitions: int, journal: Journal) -> Contents:
        topic, partition = self.place
        arrivals: list[Arrival] = []
        foreign: list[ForeignRecord] = []
        for record in self.records:
            if record.offset < at:
                continue
            kind = kind_of(
                record.key,
                record.value,
                record.headers,
                topic=topic,
                partition=partition,
                partitions=partitions,
                epoch=epoch,
                journal=journal,
            )
            epoch = epoch_after(kind, epoch)
            if isinstance(kind, Event):
                arrivals.append(arrive(record, kind))
            elif isinstance(kind, Foreign) and kind.reason != "decided":
                foreign.append(ForeignRecord(topic, partition, record.offset, kind.reason))
        return Contents(arrivals, foreign, epoch)
