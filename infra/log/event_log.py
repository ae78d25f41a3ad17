"""The events topics as the rule of `services/kernel/log/rule.py` reads them: each record with its kind."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from contracts.kernel.records import EpochsRecorded
from services.kernel.log.control import JOURNAL, read_control, read_journal, write_journal
from services.kernel.log.reader import high_watermarks, partitions_by_topic, partitions_of, read_to_end
from services.kernel.log.rule import (
    FIRST_EPOCH,
    OPENING_KEY,
    REASONS,
    STREAMS,
    Event,
    Foreign,
    Journal,
    Kind,
    Opening,
    epoch_after,
    kind_of_message,
)
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import LARGEST_NUMBER, Metadata, now_micros

EVENT_TOPICS = tuple(STREAMS)
_EVERY_EPOCH = Journal(epochs=dict.fromkeys(EVENT_TOPICS, range(FIRST_EPOCH, LARGEST_NUMBER + 1)))


@dataclass(frozen=True)
class SkippedRecord:
    """The position of a record that is not of our log. `reason` is one of the codes of `REASONS`."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}: {REASONS[self.reason]}"


def journal_at(bootstrap: str) -> Journal:
    """The decisions recorded at a broker; empty where its log is older than `site.journal`."""
    return read_journal(bootstrap) if JOURNAL in partitions_by_topic(bootstrap) else Journal()


def about_events(bootstrap: str) -> int:
    """About how many events are in both logs: transactions' markers count too. 0 only where there is none."""
    existing = partitions_by_topic(bootstrap)
    return sum(
        end
        for topic in EVENT_TOPICS
        for end in high_watermarks(bootstrap, topic, existing.get(topic, [])).values()
    )


def read_log(
    bootstrap: str,
    topic: str,
    starts: Mapping[int, int] | None = None,
    *,
    journal: Journal | None = None,
    name: str = "",
    epochs: Mapping[int, int] | None = None,
    until: Callable[[Message], bool] = lambda _: False,
    keys: Container[bytes | None] | None = None,
    timeout: float = 60,
) -> Iterator[tuple[Message, Kind]]:
    """Every committed record of an events topic and its kind, each partition in order.

    `starts` and `epochs` are by partition: from which offset (default: the first of all partitions), and
    which epoch is open there. `name` is the topic's name in decisions, where `topic` is a copy of it. `until` and
    `timeout` end it as in `read_to_end`. With `keys`, only openings and records of these keys are looked at."""
    numbers = partitions_of(bootstrap, topic)
    opened = dict.fromkeys(numbers, FIRST_EPOCH) | dict(epochs or {})
    decided = journal_at(bootstrap) if journal is None else journal
    first = dict.fromkeys(numbers, 0) if starts is None else starts
    for record in read_to_end(bootstrap, topic, first, until=until, timeout=timeout):
        if keys is not None and record.key() not in keys and record.key() != OPENING_KEY.encode():
            continue
        number = record.partition()
        kind = kind_of_message(record, len(numbers), opened[number], decided, topic=name)
        opened[number] = epoch_after(kind, opened[number])
        yield record, kind


def foreign_records(bootstrap: str) -> list[SkippedRecord]:
    """The foreign records of both logs. Raises NotCaughtUp."""
    return [
        SkippedRecord(topic, record.partition(), record.offset(), kind.reason)
        for topic in EVENT_TOPICS
        for record, kind in read_log(bootstrap, topic)
        if isinstance(kind, Foreign)
    ]


def kind_in_any_epoch(record: Message, partitions: int) -> Kind:
    """The kind of a record for a reader that begins in the middle of the log. It cannot know which epoch is open,
    so every epoch counts as open."""
    return kind_of_message(record, partitions, FIRST_EPOCH, _EVERY_EPOCH)


def event_in_any_epoch(record: Message, partitions: int) -> Metadata | None:
    """The metadata of an event; None for openings and foreign records. See `kind_in_any_epoch`."""
    kind = kind_in_any_epoch(record, partitions)
    return kind.metadata if isinstance(kind, Event) else None


def decoded(value: bytes | None) -> Any:
    """The record in these bytes; None where this code cannot decode it."""
    try:
        return decode(value)
    except Undecodable:
        return None


def record_epochs(bootstrap: str) -> list[EpochsRecorded]:
    """Record, once, which epochs the log of an older version contains. A passive site's journal is a copy.

    It runs before the new version reads or writes the log: an event that comes later cannot record its own epoch.

    Raises NotCaughtUp, or TimeoutError where the broker does not take them.
    """
    role = read_control(bootstrap).role
    if role.role != "active":
        return []
    recorded = journal_at(bootstrap).epochs
    missing = [
        EpochsRecorded(topic, unopened(bootstrap, topic, role.epoch), now_micros())
        for topic in EVENT_TOPICS
        if topic not in recorded
    ]
    write_journal(bootstrap, [(epochs.topic, epochs) for epochs in missing])
    return missing


def unopened(bootstrap: str, topic: str, last: int) -> tuple[int, ...]:
    """The epochs after the first, up to `last`, of events with no opening before them in their partition."""
    if last == FIRST_EPOCH:
        return ()  # no other epoch was ever written: nothing to look for
    numbers = partitions_of(bootstrap, topic)
    opened = {number: {FIRST_EPOCH} for number in numbers}
    epochs: set[int] = set()
    for record in read_to_end(bootstrap, topic):
        match kind_in_any_epoch(record, len(numbers)):
            case Opening(epoch=epoch):
                opened[record.partition()].add(epoch)
            case Event(metadata=metadata) if metadata.epoch <= last:
                epochs |= {metadata.epoch} - opened[record.partition()]
    return tuple(sorted(epochs))
