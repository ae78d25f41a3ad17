"""What a read model is, and what its source must guarantee. `projector.py` runs the transaction.

Two guards together make the rows exact, whatever the source does:
1. a batch carries the *seek* under which it was fetched; batches from before the last seek are dropped;
2. a batch carries the offset before it; a start beyond the stored position is a `SourceGap`.
`services/kernel/log/rule.py` classifies records. Foreign records are skipped. An event that forks its stream, or
that cannot be read or applied, parks its key: it and all later events of that key wait, in order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import asyncpg
from confluent_kafka import Message

from services.kernel.log.rule import FIRST_EPOCH, Event, Foreign, Journal, Kind, epoch_after, kind_of
from services.kernel.record.codec import decode
from services.kernel.record.envelope import Envelope, Metadata
from services.projection import ProjectionError

Connection: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"
TopicPartition = tuple[str, int]


class Stopped(ProjectionError):
    """The process must end: continuing would make a read model wrong."""


class SourceGap(Stopped):
    """The source skipped records."""


class PositionLost(Stopped):
    """Another process moved this read model's position: this process no longer owns it."""


class OtherCode(Stopped):
    """The tables were made by other code than this process runs."""


class TooManyParked(Stopped):
    """So many keys are parked that the code must be wrong, not the events."""


# A timeout is an OSError.
DATABASE_AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a statement between the server's last message and the end of the connection
    asyncpg.OperatorInterventionError,
)
# All that a question to the database may end with.
DATABASE_ERRORS = (*DATABASE_AWAY, asyncpg.PostgresError)
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
    """A row and the last event folded into it; the engine manages the latter. `version` is that of the last event,
    `event_id` its id, `changed_at` its recorded time (micros UTC). A store may keep only the version."""

    row: Row
    version: int
    event_id: str = ""
    lineage: Lineage = ()
    changed_at: int = 0


Fold: TypeAlias = Callable[[Row | None, Any, Metadata], Row]
"""`fold(row, event, metadata) -> row`: pure; for a key's first event, the row is None."""


class Store(Protocol[Row]):
    """Rows by key, in the tables of one schema."""

    async def load(self, connection: Connection, keys: Sequence[str]) -> Mapping[str, Versioned[Row]]: ...

    async def save(self, connection: Connection, rows: Mapping[str, Versioned[Row]]) -> None: ...

    async def forget(self, connection: Connection, key: str, row: Row) -> None:
        """Removes what a key's events contributed; `row` is their fold."""


StoreIn: TypeAlias = Callable[[str], Store[Row]]
"""Creates the store on the tables of a schema."""


@dataclass(frozen=True)
class ReadModel(Generic[Row]):
    """`ddl` creates the tables of `store`; `stream` is the kind of the keys: order or stock. `fingerprint` identifies
    the code and the tables: if it differs, rows may differ."""

    name: str
    topics: tuple[str, ...]
    stream: str
    fold: Fold[Row]
    store: StoreIn[Row]
    ddl: str
    fingerprint: str


class Record(NamedTuple):
    """A record of the log. Those of Faust's consumer have the same attributes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def record_of(message: Message) -> Record:
    """Returns a message of librdkafka as a record."""
    location = (message.topic(), message.partition(), message.offset())
    return Record(*location, message.key(), message.value(), message.headers() or ())


def kind_of_record(record: Record, partitions: int, epoch: int, journal: Journal) -> Kind:
    """Classifies a record of a topic with that many partitions, in which `epoch` is open."""
    return kind_of(
        record.key,
        record.value,
        record.headers,
        topic=record.topic,
        partition=record.partition,
        partitions=partitions,
        epoch=epoch,
        journal=journal,
    )


class Arrival(NamedTuple):
    """An event of the log, decoded once for all read models. `event` is None if the body cannot be read; `error` says
    why."""

    record: Record
    key: str
    kind: Event
    event: Envelope[Any] | None
    error: str


def decode_arrival(record: Record, kind: Event) -> Arrival:
    """Decodes an event. Never raises: a bad body parks only its own key."""
    try:
        return Arrival(record, kind.metadata.subject, kind, Envelope(kind.metadata, decode(record.value)), "")
    except Exception as error:
        return Arrival(record, kind.metadata.subject, kind, None, repr(error))


class ForeignRecord(NamedTuple):
    """The location of a foreign record, and the reason from `rule.REASONS`."""

    topic: str
    partition: int
    offset: int
    reason: str


class Contents(NamedTuple):
    """The events and foreign records of a batch, and the epoch that is open after it."""

    arrivals: Sequence[Arrival]
    foreign: Sequence[ForeignRecord]
    epoch: int


@dataclass
class Batch:
    """Fetched records of one partition. `start`: the source's offset before them. `known_contents`: their contents if
    known, from a copy of the log that contains only events."""

    tp: TopicPartition
    seek: int
    start: int
    records: Sequence[Record]
    known_contents: Contents | None = None
    _read: dict[tuple[int, int, int], tuple[Journal, Contents]] = field(default_factory=dict)

    @property
    def next_offset(self) -> int:
        return self.records[-1].offset + 1

    def read(self, offset: int, epoch: int, partitions: int, journal: Journal) -> Contents:
        """Returns the contents from `offset` on; `epoch` is open before them (0: nothing was read). They are decoded
        once for all read models at that position."""
        if self.known_contents is not None:
            arrivals = [
                arrival for arrival in self.known_contents.arrivals if arrival.record.offset >= offset
            ]
            return self.known_contents._replace(arrivals=arrivals)
        range_ = (max(offset, self.start), epoch or FIRST_EPOCH, id(journal))
        if range_ not in self._read:
            self._read[range_] = journal, self._classify(*range_[:2], partitions, journal)
        return self._read[range_][1]

    def _classify(self, offset: int, epoch: int, partitions: int, journal: Journal) -> Contents:
        topic, partition = self.tp
        arrivals: list[Arrival] = []
        foreign: list[ForeignRecord] = []
        for record in self.records:
            if record.offset < offset:
                continue
            kind = kind_of_record(record, partitions, epoch, journal)
            epoch = epoch_after(kind, epoch)
            if isinstance(kind, Event):
                arrivals.append(decode_arrival(record, kind))
            elif isinstance(kind, Foreign) and kind.reason != "decided":
                foreign.append(ForeignRecord(topic, partition, record.offset, kind.reason))
        return Contents(arrivals, foreign, epoch)
