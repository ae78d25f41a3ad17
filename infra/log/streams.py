"""What the log holds of a stream that stopped, and an operator's decision between its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import Message

from contracts.kernel.records import RecordJudged, RecordVerdict
from infra.base.errors import DaybookError
from services.kernel.log.journal import read_journal, write_journal
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import (
    OPENING_KEY,
    REASONS,
    STREAMS,
    Foreign,
    Journal,
    Reading,
    Step,
    digest_of,
    home_of,
)
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import Malformed, Metadata, now_micros, read_headers
from services.projection.engine.parked_keys import parked_keys
from services.projection.engine.read_model import Connection

MEANINGS = {
    Step.NEXT: "applied",
    Step.APPLIED: "a copy, changes nothing",
    Step.FORKED: "stops the stream here",
    Step.UNREADABLE: "stops the stream here: this version of the shop cannot read it",
    Step.WAITING: "waits",
}


class NoSuchRecord(DaybookError, LookupError):
    """The log does not hold what was asked for."""


@dataclass(frozen=True)
class StoppedStream:
    """`since` is micros UTC; None, and no read models, where only the stream's owner has seen it yet."""

    stream: str
    version: int
    kind: str
    read_models: tuple[str, ...]
    events: int
    since: int | None
    reason: str


@dataclass(frozen=True)
class ForeignSeen:
    """A foreign record as a read model met it: topic/partition/offset, why, and when (micros UTC)."""

    position: str
    reason: str
    seen_at: int


@dataclass(frozen=True)
class StreamRecord:
    """One record of the log. `metadata` is None where its headers are not an envelope; `meaning` says what it
    is to the shop."""

    position: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    metadata: Metadata | None
    meaning: str

    @property
    def event_id(self) -> str:
        return self.metadata.id if self.metadata is not None else ""

    @property
    def is_event(self) -> bool:
        """Whether a decision may be about it: other records are foreign, whatever anybody decides."""
        return not self.meaning.startswith("foreign") or self.meaning.endswith(REASONS["decided"])

    @property
    def digest(self) -> str:
        return digest_of(self.value)

    @property
    def body(self) -> Any:
        """Its fields as plain values; None where it cannot be read."""
        try:
            return msgspec.to_builtins(decode(self.value))
        except Undecodable:
            return None


async def stopped_streams(connection: Connection, journal: Journal) -> list[StoppedStream]:
    """Streams at which read models stopped, or that a worker judged suspect."""
    found: dict[str, StoppedStream] = {}
    for key in await parked_keys(connection):
        if key.kind not in ("forked", "unreadable") or key.read_model.endswith("_next"):
            continue
        stream = f"{STREAMS.get(key.topic, key.topic)}/{key.key}"
        before = found.get(stream)
        models = (*(before.read_models if before else ()), key.read_model)
        since = min(key.parked_at, before.since or key.parked_at) if before else key.parked_at
        found[stream] = StoppedStream(stream, key.version, key.kind, models, key.events, since, key.reason)
    for about, verdict in journal.verdicts.items():
        if verdict == "suspect" and about.stream not in found:
            reason = f"event {about.event_id} was not written by the owner of the stream"
            found[about.stream] = StoppedStream(about.stream, about.version, "suspect", (), 0, None, reason)
    return [found[stream] for stream in sorted(found)]


async def foreign_count(connection: Connection) -> int:
    """How many foreign records the read models met."""
    return int(await connection.fetchval("SELECT coalesce(sum(records), 0) FROM foreign_count"))


async def foreign_records(connection: Connection, most: int) -> list[ForeignSeen]:
    """The newest of those that are kept."""
    rows = await connection.fetch(
        'SELECT * FROM foreign_record ORDER BY seen_at DESC, topic, partition, "offset" LIMIT $1', most
    )
    return [
        ForeignSeen(f"{row['topic']}/{row['partition']}/{row['offset']}", row["reason"], row["seen_at"])
        for row in rows
    ]


def records_of(kafka: str, stream: str) -> list[StreamRecord]:
    """Every record under the stream's key in its partition, as the log's rule reads them now.

    Raises `NoSuchRecord`, TimeoutError, KafkaException.
    """
    kind, _, key = stream.partition("/")
    topics = {called: topic for topic, called in STREAMS.items()}
    if kind not in topics or not key:
        raise NoSuchRecord(
            f"there is no stream {stream}: write {' or '.join(f'{name}/ID' for name in topics)}"
        )
    topic, journal = topics[kind], read_journal(kafka)
    count = len(partitions_of(kafka, topic))
    place = home_of(key, count)
    reading = Reading(topic, place, count, journal, _readable)
    wanted = {key.encode(), *(() if journal.epochs.get(topic) else (OPENING_KEY.encode(),))}
    found = []
    for record in read_to_end(kafka, topic, {place: 0}):
        if record.key() in wanted or journal.epochs.get(topic):
            meaning = reading.take(record.key(), record.value(), record.headers())
            if record.key() == key.encode():
                found.append(_stream_record(record, _meaning(meaning)))
    if not found:
        raise NoSuchRecord(f"{topic}/{place} holds no record of {stream}")
    return found


def record_at(kafka: str, position: str) -> StreamRecord:
    """The record at topic/partition/offset. Raises `NoSuchRecord`, TimeoutError, KafkaException."""
    topic, number, offset = position.rsplit("/", 2)
    if topic not in STREAMS or not (number.isdecimal() and offset.isdecimal()):
        raise NoSuchRecord(f"there is no position {position}: write {next(iter(STREAMS))}/0/17")
    place, at = int(number), int(offset)
    if place in partitions_of(kafka, topic):
        for record in read_to_end(kafka, topic, {place: at}, {place: at + 1}):
            if record.offset() == at:
                return _stream_record(record, "")
            if record.offset() > at:
                break
    raise NoSuchRecord(f"{topic}/{place} holds no record at {at}")


def at_version(records: Iterable[StreamRecord], version: int) -> list[StreamRecord]:
    """The events of a version, one for each event id and value: what decisions can be about."""
    found = {
        (record.metadata.id, record.digest): record
        for record in records
        if record.metadata is not None and record.metadata.version == version and record.is_event
    }
    return list(found.values())


def judge(
    kafka: str, stream: str, decided: Iterable[tuple[StreamRecord, RecordVerdict]], reason: str
) -> None:
    """Record decisions, for ever and for both sites. Raises TimeoutError."""
    judged = [
        (stream, RecordJudged(stream, meta.version, meta.id, record.digest, verdict, reason, now_micros()))
        for record, verdict in decided
        if (meta := record.metadata) is not None
    ]
    write_journal(kafka, judged)


def _readable(value: bytes | None) -> bool:
    try:
        decode(value)
    except Exception:
        return False
    return True


def _meaning(taken: Any) -> str:
    if isinstance(taken, Foreign):
        return f"foreign, skipped: {REASONS[taken.reason]}"
    return MEANINGS.get(taken, "")


def _stream_record(record: Message, meaning: str) -> StreamRecord:
    headers = record.headers() or ()
    try:
        metadata = read_headers(headers)
    except Malformed:
        metadata = None
    position = f"{record.topic()}/{record.partition()}/{record.offset()}"
    return StreamRecord(position, record.key(), record.value(), headers, metadata, meaning)
