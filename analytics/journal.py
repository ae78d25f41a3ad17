"""Reads `site.journal`: the decisions on records, and the recorded epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from analytics.decoder import UndecodableValue, read_record
from analytics.offsets import REQUEST_SECONDS, LogUnreachable
from contracts.kernel.records import EpochsRecorded, RecordJudged
from contracts.lock import Lock, load_lock
from services.kernel.log.reader import NotCaughtUp, partitions_by_topic, read_to_end

TOPIC = "site.journal"
Subject = tuple[str, int, str, str]
"""Stream, version, event id and SHA-256 of the value in hexadecimal digits."""


@dataclass(frozen=True)
class RecordedDecisions:
    """The last verdict on each record, and the last epochs of each topic."""

    verdicts: Mapping[Subject, str] = field(default_factory=dict)
    epochs: Mapping[str, frozenset[int]] = field(default_factory=dict)


NO_DECISIONS = RecordedDecisions()


def read_decisions(kafka: str) -> RecordedDecisions:
    """Returns the recorded decisions; none if the log has no journal. Raises LogUnreachable."""
    try:
        if TOPIC not in partitions_by_topic(kafka, REQUEST_SECONDS):
            return NO_DECISIONS
        records = read_to_end(kafka, TOPIC, {0: 0}, timeout=REQUEST_SECONDS)
        return decisions([record.value() for record in records], load_lock())
    except (KafkaException, NotCaughtUp) as error:
        raise LogUnreachable(f"the broker at {kafka} does not respond: {error}") from error


def decisions(values: Iterable[bytes | None], lock: Lock) -> RecordedDecisions:
    """Returns the decisions of the journal's records, in order; other records change nothing."""
    verdicts: dict[Subject, str] = {}
    epochs: dict[str, frozenset[int]] = {}
    for value in values:
        try:
            name, record = read_record(value or b"", lock)
        except UndecodableValue:
            continue
        if name == RecordJudged.TYPE:
            subject = (record["stream"], record["version"], record["event_id"], record["digest"])
            verdicts[subject] = record["verdict"]
        elif name == EpochsRecorded.TYPE:
            epochs[record["topic"]] = frozenset(record["epochs"])
    return RecordedDecisions(verdicts, epochs)
