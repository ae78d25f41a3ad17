"""What a record of an events topic is: one rule for every reader, on either site, today or in a year.

The answer depends on the log before the record in its partition and on the decisions in `site.journal`; never
on `site.control`, a clock or the reader's own version (docs/adr/0017). `analytics/log_rule.py` says the same
in Spark; `tests/contract/log_rule_cases.py` is the table that tests both.

- *Foreign*: not a record of our log. Every reader skips it, counts it and names it once (`foreign`).
- *Opening*: the first record of a write epoch in the partition. A log begins in epoch 1.
- *Event*: `step` says whether it is the next of its stream. If not, the stream has forked: that key stops.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import structlog
from confluent_kafka import Message
from prometheus_client import Counter

from contracts.kernel.records import Answer, EpochOpened, RecordVerdict
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import Metadata, partition_of, read_event_headers

FIRST_EPOCH = 1
OPENING_KEY = "#epoch"  # no entity is called so: ids begin with a letter or a digit
LONGEST_KEY = 2000  # bytes; PostgreSQL's index entries end at 2704
STREAMS: Mapping[str, str] = {"order.events": "order", "inventory.events": "stock"}
"""What the streams of an events topic are called in tokens and in decisions."""

FOREIGN = Counter("daybook_foreign_records", "Records that are not of our log, skipped", ["topic"])

log = structlog.get_logger()

Headers: TypeAlias = Iterable[tuple[str, bytes | str | None]]


class Judged(NamedTuple):
    """Which record a decision is about. `digest` is `digest_of` its value."""

    stream: str
    version: int
    event_id: str
    digest: str


@dataclass(frozen=True)
class Journal:
    """The decisions of `site.journal`, whose order is the same on both sites.

    `verdicts` holds the last one on each record, `streams` the number (from 1) of the last decision on each
    stream, `count` all decisions; `epochs` those that a topic held before records opened them.
    """

    verdicts: Mapping[Judged, RecordVerdict] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    count: int = 0
    epochs: Mapping[str, Collection[int]] = field(default_factory=dict)


class Foreign(NamedTuple):
    """Not a record of our log. `reason` is one of the codes in `REASONS`."""

    reason: str


class Opening(NamedTuple):
    """From here on the partition is written in this epoch."""

    epoch: int


class Event(NamedTuple):
    """A record of an entity's stream, with the verdict of an operator or of the stream's owner, if any."""

    metadata: Metadata
    verdict: RecordVerdict | None = None


Kind: TypeAlias = Foreign | Opening | Event

REASONS: Mapping[str, str] = {
    "no_envelope": "its headers are not an envelope",
    "key_differs": "its key is not the subject of its envelope",
    "wrong_partition": "its key belongs to another partition",
    "no_version": "its envelope has no version",
    "epoch_not_open": "its epoch is not open in the partition",
    "decided": "an operator decided so",
}


class Step(Enum):
    """What an event means to a stream that was read up to some version."""

    NEXT = "next"
    APPLIED = "already applied"
    FORKED = "forked"
    UNREADABLE = "unreadable"  # the next one, but this reader cannot decode it: never passed
    WAITING = "waiting"  # behind an event at which the stream stopped


def kind_of(
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None,
    *,
    topic: str,
    partition: int,
    partitions: int,
    epoch: int,
    journal: Journal,
) -> Kind:
    """What this record is, where `epoch` is open in its partition; `partitions` is how many its topic has."""
    values = dict(headers or ())
    metadata = read_event_headers(values)
    if metadata is None:
        return Foreign("no_envelope")
    if key is None or key != values["ce_subject"] or len(key) > LONGEST_KEY:
        return Foreign("key_differs")
    if metadata.type == EpochOpened.TYPE and metadata.subject == OPENING_KEY:
        return Opening(metadata.epoch) if metadata.epoch >= epoch else Foreign("epoch_not_open")
    if partition_of(metadata.subject, partitions) != partition:
        return Foreign("wrong_partition")
    if not metadata.version:
        return Foreign("no_version")
    if metadata.epoch != epoch and not (
        metadata.epoch > epoch and metadata.epoch in journal.epochs.get(topic, ())
    ):
        return Foreign("epoch_not_open")
    verdict = _verdict(topic, metadata, value, journal)
    return Foreign("decided") if verdict == "foreign" else Event(metadata, verdict)


def kind_of_message(
    record: Message, partitions: int, epoch: int, journal: Journal, *, topic: str = ""
) -> Kind:
    """`kind_of` for a message. `topic`: its topic's name in decisions, where it is read from a copy of that topic."""
    return kind_of(
        record.key(),
        record.value(),
        record.headers(),
        topic=topic or record.topic(),
        partition=record.partition(),
        partitions=partitions,
        epoch=epoch,
        journal=journal,
    )


def epoch_after(kind: Kind, epoch: int) -> int:
    """The epoch that is open behind a record. An epoch that was recorded at an upgrade opens with its first event."""
    match kind:
        case Opening(epoch=opened):
            return opened
        case Event(metadata=metadata):
            return metadata.epoch
        case _:
            return epoch


def step(read: int, event: Event) -> Step:
    """What an event means to its stream, whose events were read up to the version `read`.

    A record that is judged genuine counts once: its copies change nothing.
    """
    if event.verdict == "suspect":
        return Step.FORKED
    if event.metadata.version == read + 1:
        return Step.NEXT
    if event.verdict == "genuine" and event.metadata.version <= read:
        return Step.APPLIED
    return Step.FORKED


class Reading:
    """One partition read from its first record: the open epoch, how far each key was read, and which keys stopped."""

    def __init__(
        self,
        topic: str,
        partition: int,
        partitions: int,
        journal: Journal,
        readable: Callable[[bytes | None], bool],
    ) -> None:
        self._about = {"topic": topic, "partition": partition, "partitions": partitions, "journal": journal}
        self._readable = readable
        self.epoch = FIRST_EPOCH
        self.read: dict[str, int] = {}
        self.stopped: set[str] = set()

    def take(
        self, key: bytes | None, value: bytes | None, headers: Headers | None
    ) -> Foreign | Opening | Step:
        """What the next record of the partition is. Once a key is stopped, its events are `WAITING`."""
        kind = kind_of(key, value, headers, epoch=self.epoch, **self._about)  # type: ignore[arg-type]
        self.epoch = epoch_after(kind, self.epoch)
        if not isinstance(kind, Event):
            return kind
        subject = kind.metadata.subject
        if subject in self.stopped:
            return Step.WAITING
        read = self.read.get(subject, 0)
        meant = step(read, kind)
        if meant is Step.NEXT and not self._readable(value):
            meant = Step.UNREADABLE
        if meant is Step.NEXT:
            self.read[subject] = read + 1
        elif meant is not Step.APPLIED:
            self.stopped.add(subject)
        return meant


def identity(topic: str, metadata: Metadata, value: bytes | None) -> Judged:
    """How a decision names this event: never by an offset, which another site does not share."""
    return Judged(stream_of(topic, metadata.subject), metadata.version, metadata.id, digest_of(value))


def stream_of(topic: str, key: str) -> str:
    """`order/<order id>` or `stock/<SKU>`."""
    return f"{STREAMS.get(topic, topic)}/{key}"


def digest_of(value: bytes | None) -> str:
    """SHA-256 of a record's value, in hexadecimal digits; no value counts as an empty one."""
    return sha256(value or b"").hexdigest()


def _verdict(topic: str, metadata: Metadata, value: bytes | None, journal: Journal) -> RecordVerdict | None:
    judged = journal.streams and stream_of(topic, metadata.subject) in journal.streams
    return journal.verdicts.get(identity(topic, metadata, value)) if judged else None


def answer_of(record: Message) -> Answer | None:
    """The recorded outcome that a record of an answers topic contains; None where the record is foreign."""
    try:
        recorded = decode(record.value())
    except Undecodable:
        return None
    key = (record.key() or b"").decode(errors="replace")
    return recorded if isinstance(recorded, Answer) and recorded.outcome.subject == key else None


def foreign(record: Message, reason: str) -> None:
    """Called by a reader that skips a record, once for each time that it reads it."""
    FOREIGN.labels(record.topic()).inc()
    log.warning("foreign_record", position=place_of(record), reason=reason, next="`daybook streams list`")


def place_of(record: Message) -> str:
    """Topic, partition and offset, as the commands take them."""
    return f"{record.topic()}/{record.partition()}/{record.offset()}"
