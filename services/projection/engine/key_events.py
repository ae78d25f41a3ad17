"""Reads the events of some keys again, from the first record of their partition."""

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
from services.projection.engine.read_model import Arrival, TopicPartition, decode_arrival


@dataclass
class KeyEvents:
    """Collects each key's events in `arrivals`, ignoring decisions. `journal` says which epochs were open; of other
    records it reads only those that open an epoch."""

    kafka: str
    tp: TopicPartition
    partitions: int
    journal: Journal
    arrivals: Mapping[bytes | None, list[Arrival]]
    next_offset: int = 0
    epoch: int = FIRST_EPOCH

    def read_to(self, end: int) -> None:
        """Blocks. Raises `NotCaughtUp`, KafkaException."""
        topic, partition = self.tp
        opening, recorded = OPENING_KEY.encode(), bool(self.journal.epochs.get(topic))
        undecided = replace(self.journal, verdicts={}, streams={})
        if self.next_offset >= end:
            return
        for record in read_to_end(self.kafka, topic, {partition: self.next_offset}, {partition: end}):
            self.next_offset = record.offset() + 1
            if recorded or record.key() == opening or record.key() in self.arrivals:
                self._add(record, undecided)
        self.next_offset = max(self.next_offset, end)

    def _add(self, record: Message, undecided: Journal) -> None:
        topic, partition = self.tp
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
            if key in self.arrivals:
                stored = StoredRecord(topic, partition, record.offset(), key, value, headers)
                self.arrivals[key].append(decode_arrival(stored, kind))
            if self.journal.verdicts.get(identity(topic, kind.metadata, value)) == "foreign":
                return  # it opens no epoch
        self.epoch = epoch_after(kind, self.epoch)


def with_verdicts(arrivals: Iterable[Arrival], verdicts: Mapping[Judged, RecordVerdict]) -> list[Arrival]:
    """Returns the events with their verdicts."""

    def verdict(arrival: Arrival) -> RecordVerdict | None:
        return verdicts.get(identity(arrival.record.topic, arrival.kind.metadata, arrival.record.value))

    return [arrival._replace(kind=Event(arrival.kind.metadata, verdict(arrival))) for arrival in arrivals]
