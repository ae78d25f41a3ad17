"""The events topics as the rule of `services/kernel/log/rule.py` reads them: each record with what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from services.kernel.log.journal import TOPIC as JOURNAL
from services.kernel.log.journal import read_journal
from services.kernel.log.reader import partitions_by_topic, partitions_of, read_to_end
from services.kernel.log.rule import (
    FIRST_EPOCH,
    REASONS,
    STREAMS,
    Event,
    Foreign,
    Journal,
    Kind,
    epoch_after,
    kind_of,
)
from services.kernel.record.envelope import LARGEST_NUMBER, Metadata

EVENT_TOPICS = tuple(STREAMS)
_EVERY_EPOCH = Journal(epochs=dict.fromkeys(EVENT_TOPICS, range(FIRST_EPOCH, LARGEST_NUMBER + 1)))


@dataclass(frozen=True)
class SkippedRecord:
    """A record that is not of our log, where it stands. `reason` is one of the codes of `REASONS`."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}: {REASONS[self.reason]}"


def journal_at(bootstrap: str) -> Journal:
    """The decisions recorded at a broker; none where its log is older than `site.journal`."""
    return read_journal(bootstrap) if JOURNAL in partitions_by_topic(bootstrap) else Journal()


def read_log(
    bootstrap: str,
    topic: str,
    starts: Mapping[int, int] | None = None,
    *,
    journal: Journal | None = None,
    name: str = "",
    epochs: Mapping[int, int] | None = None,
) -> Iterator[tuple[Message, Kind]]:
    """Every committed record of an events topic and what it is, each partition in order.

    `starts` and `epochs` are by partition: from which offset (default: the first of all partitions), and
    which epoch is open there. `name` is the topic's name in decisions, where `topic` is a copy of it.
    """
    numbers = partitions_of(bootstrap, topic)
    opened = dict.fromkeys(numbers, FIRST_EPOCH) | dict(epochs or {})
    decided = journal_at(bootstrap) if journal is None else journal
    for record in read_to_end(bootstrap, topic, dict.fromkeys(numbers, 0) if starts is None else starts):
        number = record.partition()
        kind = kind_of(
            record.key(),
            record.value(),
            record.headers(),
            topic=name or topic,
            partition=number,
            partitions=len(numbers),
            epoch=opened[number],
            journal=decided,
        )
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
    """What a record is to a reader that begins in the middle of the log, where it cannot know which epoch is
    open: every one counts as open."""
    return kind_of(
        record.key(),
        record.value(),
        record.headers(),
        topic=record.topic(),
        partition=record.partition(),
        partitions=partitions,
        epoch=FIRST_EPOCH,
        journal=_EVERY_EPOCH,
    )


def event_in_any_epoch(record: Message, partitions: int) -> Metadata | None:
    """The metadata of an event; None for openings and foreign records. See `kind_in_any_epoch`."""
    kind = kind_in_any_epoch(record, partitions)
    return kind.metadata if isinstance(kind, Event) else None
