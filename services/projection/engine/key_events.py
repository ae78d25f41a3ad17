"""The events of some keys, read again from the first record of their partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from confluent_kafka import Message

from contracts.kernel.records import RecordVerdict
from services.kernel.log.reader import read_to_end
from services.kernel.log.rule import (
    FIRST_EPOCH,
    OPENING_KEY,
    Event,
    Journal,
    Judged,
    epoch_after,
    identity,
    kind_of,
)
from services.projection.engine.parked_keys import StoredRecord
from services.projection.engine.read_model import Arrival, TopicPartition, arrive


@dataclass
class KeyEvents:
    """`found` fills with each key's events, whatever was decided about them. `journal` says which epochs were
    open; of other records only those that open one are looked at."""

    kafka: str
    place: TopicPartition
    partitions: int
    journal: Journal
    found: Mapping[bytes | None, list[Arrival]]
    next: int = 0
    epoch: int = FIRST_EPOCH

    def read_to(self, end: int) -> None:
        """Blocks. Raises `NotCaughtUp`, KafkaException."""
        topic, partition = self.place
        opening, recorded = OPENING_KEY.encode(), bool(self.journal.epochs.get(topic))
        undecided = replace(self.journal, verdicts={}, streams={})
        if self.next >= end:
            return
        for record in read_to_end(self.kafka, topic, {partition: self.next}, {partition: end}):
            self.next = record.offset() + 1
            if recorded or record.key() == opening or record.key() in self.found:
                self._take(record, undecided)
        self.next = max(self.next, end)

    def _take(self, record: Message, undecided: Journal) -> None:
        topic, partition = self.place
        key, value, headers = record.key(), record.value(), record.headers() or ()
        kind = kind_of(
            key,
            value,
            headers,
            topic=topic,
            partition=partition,
            partitions=self.partitions,
            epoch=self.epoch,
            journal=undecided,
        )
        if isinstance(kind, Event):
            if key in self.found:
                stored = StoredRecord(topic, partition, record.offset(), key, value, headers)
                self.found[key].append(arrive(stored, kind))
            if self.journal.verdicts.get(identity(topic, kind.metadata, value)) == "foreign":
                return  # and opens no epoch
        self.epoch = epoch_after(kind, self.epoch)


def judged_by(arrivals: Iterable[Arrival], verdicts: Mapping[Judged, RecordVerdict]) -> list[Arrival]:
    """The events with the verdicts on them."""

    def verdict(one: Arrival) -> RecordVerdict | None:
        return verdicts.get(identity(one.record.topic, one.kind.metadata, one.record.value))

    return [one._replace(kind=Event(one.kind.metadata, verdict(one))) for one in arrivals]
