"""Streams that stopped, foreign records, and an operator's decision between the records of a stream."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import Message

from contracts.kernel.records import RecordJudged, RecordVerdict
from infra.base.errors import DaybookError
from infra.log.database import in_database
from infra.log.event_log import decoded
from services.kernel.log.control import read_journal, write_journal
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import OPENING_KEY, REASONS, STREAMS, Foreign, Journal, Reading, Step, digest_of
from services.kernel.record.codec import decode
from services.kernel.record.envelope import Malformed, Metadata, now_micros, partition_of, read_headers
from services.projection.engine.parked_keys import parked_keys
from services.projection.engine.read_model import DATABASE_ERRORS, Connection

MEANINGS = {
    Step.NEXT: "applied",
    Step.APPLIED: "a copy, changes nothing",
    Step.FORKED: "stops the stream here",
    Step.UNREADABLE: "stops the stream here: this version of the shop cannot read it",
    Step.WAITING: "waits",
}


class NoSuchRecord(DaybookError, LookupError):
    """The log has no such stream or record."""


@dataclass(frozen=True)
class StoppedStream:
    """`since` is micros UTC. Without read models only the stream's owner has stopped, and `since` is None."""

    stream: str
    version: int
    kind: str
    read_models: tuple[str, ...]
    events: int
    since: int | None
    reason: str


@dataclass(frozen=True)
class ForeignSeen:
    """A foreign record that a read model skipped: topic/partition/offset, the reason, the time (micros UTC)."""

    position: str
    reason: str
    seen_at: int


@dataclass(frozen=True)
class StreamRecord:
    """One record of the log. `metadata` is None where its headers are no envelope; `meaning` is what the shop does
    with it."""

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
        """Whether an operator can decide about it: records that are no events stay foreign."""
        return not self.meaning.startswith("foreign") or self.meaning.endswith(REASONS["decided"])

    @property
    def digest(self) -> str:
        return digest_of(self.value)

    @property
    def body(self) -> Any:
        """Its fields as plain values; None where it cannot be read."""
        return msgspec.to_builtins(decoded(self.value))


async def stopped_streams(connection: Connection, journal: Journal) -> list[StoppedStream]:
    """Streams at which read models stopped, or that a worker judged suspect."""
    streams: dict[str, StoppedStream] = {}
    for key in await parked_keys(connection):
        if key.kind not in ("forked", "unreadable") or key.read_model.endswith("_next"):
            continue
        stream = f"{STREAMS.get(key.topic, key.topic)}/{key.key}"
        before = streams.get(stream)
        models = (*(before.read_models if before else ()), key.read_model)
        since = min(key.parked_at, before.since or key.parked_at) if before else key.parked_at
        streams[stream] = StoppedStream(stream, key.version, key.kind, models, key.events, since, key.reason)
    for about, verdict in journal.verdicts.items():
        if verdict == "suspect" and about.stream not in streams:
            reason = f"event {about.event_id} was not written by the owner of the stream"
            streams[about.stream] = StoppedStream(about.stream, about.version, "suspect", (), 0, None, reason)
    return [streams[stream] for stream in sorted(streams)]


async def foreign_count(connection: Connection) -> int:
    """How many foreign records the read models skipped."""
    return int(await connection.fetchval("SELECT coalesce(sum(records), 0) FROM foreign_count"))


async def foreign_records(connection: Connection, most: int) -> list[ForeignSeen]:
    """The newest of the stored ones."""
    rows = await connection.fetch(
        'SELECT * FROM foreign_record ORDER BY seen_at DESC, topic, partition, "offset" LIMIT $1', most
    )
    return [
        ForeignSeen(f"{row['topic']}/{row['partition']}/{row['offset']}", row["reason"], row["seen_at"])
        for row in rows
    ]


def records_of(kafka: str, stream: str) -> list[StreamRecord]:
    """Every record with the stream's key in its partition, as the log's rule reads it now.

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
    partition = partition_of(key, count)
    reading = Reading(topic, partition, count, journal, _readable)
    keys = {key.encode(), *(() if journal.epochs.get(topic) else (OPENING_KEY.encode(),))}
    records = []
    for record in read_to_end(kafka, topic, {partition: 0}):
        if record.key() in keys or journal.epochs.get(topic):
            meaning = reading.take(record.key(), record.value(), record.headers())
            if record.key() == key.encode():
                records.append(_stream_record(record, _meaning(meaning)))
    if not records:
        raise NoSuchRecord(f"{topic}/{partition} holds no record of {stream}")
    return records


def record_at(kafka: str, position: str) -> StreamRecord:
    """The record at topic/partition/offset. Raises `NoSuchRecord`, TimeoutError, KafkaException."""
    topic, number, offset = position.rsplit("/", 2)
    if topic not in STREAMS or not (number.isdecimal() and offset.isdecimal()):
        raise NoSuchRecord(f"there is no position {position}: write {next(iter(STREAMS))}/0/17")
    partition, at = int(number), int(offset)
    if partition in partitions_of(kafka, topic):
        for record in read_to_end(kafka, topic, {partition: at}, {partition: at + 1}):
            if record.offset() == at:
                return _stream_record(record, "")
            if record.offset() > at:
                break
    raise NoSuchRecord(f"{topic}/{partition} holds no record at {at}")


def at_version(records: Iterable[StreamRecord], version: int) -> list[StreamRecord]:
    """The events of a version, one for each event id and value: an operator decides between these."""
    events = {
        (record.metadata.id, record.digest): record
        for record in records
        if record.metadata is not None and record.metadata.version == version and record.is_event
    }
    return list(events.values())


def judge(
    kafka: str, stream: str, decided: Iterable[tuple[StreamRecord, RecordVerdict]], reason: str
) -> None:
    """Record decisions, permanently and for both sites. Raises TimeoutError."""
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


def _meaning(outcome: Any) -> str:
    if isinstance(outcome, Foreign):
        return f"foreign, skipped: {REASONS[outcome.reason]}"
    return MEANINGS.get(outcome, "")


def _stream_record(record: Message, meaning: str) -> StreamRecord:
    headers = record.headers() or ()
    try:
        metadata = read_headers(headers)
    except Malformed:
        metadata = None
    position = f"{record.topic()}/{record.partition()}/{record.offset()}"
    return StreamRecord(position, record.key(), record.value(), headers, metadata, meaning)


SECONDS = 2.0


def stream_lines(url: str, command: str) -> list[str]:
    """A line for stopped streams and one for foreign records, if there are any; nothing where the database does not
    respond at once. `command` is `./daybook`, as it is typed for this stack."""
    try:
        stopped, foreign = in_database(url, _counts, SECONDS)
    except DATABASE_ERRORS:
        return []
    lines = {"streams have stopped": stopped, "foreign records were skipped": foreign}
    return [f"{count} {what}: `{command} streams list`" for what, count in lines.items() if count]


async def _counts(connection: Connection) -> tuple[int, int]:
    async with asyncio.timeout(SECONDS):
        # without the journal: what workers judged suspect is in the log, which is not read here
        return len(await stopped_streams(connection, Journal())), await foreign_count(connection)
