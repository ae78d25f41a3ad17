"""Applies decisions of `site.journal` to rows that are older: folds the stream's key again.

One transaction locks the read model's position, removes what the key's events contributed under the earlier
decisions, and applies the events from version 1 on under the current ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import structlog
from confluent_kafka import KafkaException

from contracts.kernel.records import RecordVerdict
from services.kernel.log.reader import read_to_end
from services.kernel.log.rule import (
    FIRST_EPOCH,
    OPENING_KEY,
    STREAMS,
    Event,
    Journal,
    Judged,
    epoch_after,
    identity,
)
from services.kernel.record.envelope import partition_of
from services.projection import ProjectionError
from services.projection.engine.position import (
    CHANNEL,
    JUDGE,
    about,
    honoured,
    notification,
    require_own_tables,
)
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import (
    Arrival,
    Connection,
    ReadModel,
    Record,
    TopicPartition,
    decode_arrival,
    kind_of_record,
    record_of,
)
from services.projection.engine.row_fold import apply_run, fold, park, skipped_versions

# Reading a long stream leaves the transaction idle. A transaction's time can be removed in it, but not moved.
_READS_THE_LOG = "SET LOCAL idle_in_transaction_session_timeout = '60s'; SET LOCAL transaction_timeout = 0"
_LOCK_POSITION = """
SELECT next_offset FROM position WHERE read_model = $1 AND topic = $2 AND partition = $3 FOR UPDATE"""
_UNPARK = "DELETE FROM parked WHERE read_model = $1 AND key = $2"
_FORGET = "DELETE FROM judged WHERE read_model = $1 AND stream = $2"
# a decision about a version replaces its skip
_UNSKIP = "DELETE FROM skipped WHERE read_model = $1 AND key = $2 AND version = ANY($3)"

log = structlog.get_logger(__name__)


class RowMismatch(ProjectionError):
    """The key's row differs from the fold of its events, so what they contributed is unknown."""


class Decisions:
    """Applies the recorded decisions to the rows of a projector's read models."""

    def __init__(
        self, kafka: str, pool: asyncpg.Pool[Any], projector: Projector, journal: Callable[[], Journal]
    ) -> None:
        self._kafka, self._pool, self._projector, self._journal = kafka, pool, projector, journal
        self._refused: set[tuple[str, str, Any]] = set()

    async def apply(self) -> list[str]:
        """Folds again the keys with new decisions; returns them as `read_model:key`."""
        latest, refolded = self._journal(), list[str]()
        for tp, streams in (await self._due(latest)).items():
            keys: dict[bytes | None, list[Arrival]] = {_key(stream).encode(): [] for stream in streams}
            events = KeyEvents(self._kafka, tp, self._projector.partitions[tp[0]], latest, keys)
            try:
                await asyncio.to_thread(events.read_to, self._furthest(tp))
                for stream, models in streams.items():
                    for model in models:
                        await self._refold(model, stream, events, latest)
                        refolded.append(f"{model.name}:{_key(stream)}")
            except (KafkaException, TimeoutError) as error:
                log.warning("decisions_wait", reason=str(error))
        return refolded

    def _furthest(self, partition: TopicPartition) -> int:
        positions = self._projector.positions.values()
        return max((stored[partition].next_offset for stored in positions if partition in stored), default=0)

    async def _due(self, latest: Journal) -> dict[TopicPartition, dict[str, list[ReadModel[Any]]]]:
        """Returns, by partition, the streams with new decisions, and the read models concerned."""
        due: dict[TopicPartition, dict[str, list[ReadModel[Any]]]] = {}
        async with self._pool.acquire() as connection:
            for name, model in self._projector.models.items():
                if not self._projector.positions[name]:
                    continue
                if not latest.verdicts:
                    self._projector.honoured[name] = latest
                    continue
                honoured_journal = await honoured(connection, model, latest)
                if honoured_journal is latest:
                    self._projector.honoured[name] = latest
                changed = about(model, honoured_journal).items() ^ about(model, latest).items()
                for stream in {judged.stream for judged, _ in changed}:
                    topic = next(topic for topic, called in STREAMS.items() if called == model.stream)
                    tp = topic, partition_of(_key(stream), self._projector.partitions[topic])
                    refused = (name, stream, _verdicts(stream, latest)) in self._refused
                    if tp in self._projector.positions[name] and not refused:
                        due.setdefault(tp, {}).setdefault(stream, []).append(model)
        return due

    async def _refold(self, model: ReadModel[Any], stream: str, events: KeyEvents, latest: Journal) -> None:
        """Folds one stream again. The lock stops batches that were read before the decision."""
        name = model.name
        async with self._projector.locks[name], self._pool.acquire() as connection:
            try:
                async with connection.transaction():
                    await connection.execute(_READS_THE_LOG)
                    end = await connection.fetchval(_LOCK_POSITION, name, *events.tp)
                    await require_own_tables(connection, [model])
                    await asyncio.to_thread(events.read_to, end)
                    arrivals = events.arrivals[_key(stream).encode()]
                    before = await honoured(connection, model, latest)
                    await refold(
                        connection,
                        model,
                        stream,
                        [event for event in arrivals if event.record.offset < end],
                        before,
                        latest,
                    )
            except RowMismatch as error:
                self._refused.add((name, stream, _verdicts(stream, latest)))
                log.error("decision_not_honoured", reason=str(error), next=f"`./daybook rebuild {name}`")
            self._projector.honoured[name] = await honoured(connection, model, latest)


async def refold(
    connection: Connection,
    model: ReadModel[Any],
    stream: str,
    events: Sequence[Arrival],
    before: Journal,
    latest: Journal,
) -> None:
    """Replaces a key's rows with the fold of its events under the latest decisions. Raises `RowMismatch`."""
    key, store = _key(stream), model.store(model.name)
    row = (await store.load(connection, [key])).get(key)
    if row is not None:
        skipped = await skipped_versions(connection, model.name, [key])
        own = [event for event in events if event.kind.metadata.version <= row.version]
        previous = fold(model, {}, with_verdicts(own, before.verdicts), skipped).rows.get(key)
        if previous is None or previous.version != row.version:
            raise RowMismatch(
                f"{model.name} {key} is at version {row.version}, but the fold of its events is not"
            )
        await store.forget(connection, key, previous.row)
    judged = _verdicts(stream, latest)
    await connection.execute(_UNPARK, model.name, key)
    await connection.execute(_UNSKIP, model.name, key, [about.version for about, _ in judged])
    for event, stop in await apply_run(connection, model, with_verdicts(events, latest.verdicts)):
        await park(connection, model.name, event, stop)
    await connection.execute(_FORGET, model.name, stream)
    await connection.executemany(JUDGE, [(model.name, *about, verdict) for about, verdict in judged])
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, notification(model.name, [key]))


def _key(stream: str) -> str:
    return stream.partition("/")[2]


def _verdicts(stream: str, journal: Journal) -> frozenset[tuple[Judged, RecordVerdict]]:
    return frozenset(entry for entry in journal.verdicts.items() if entry[0].stream == stream)


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
        messages = read_to_end(self.kafka, topic, {partition: self.next_offset}, {partition: end})
        for record in map(record_of, messages):
            self.next_offset = record.offset + 1
            if recorded or record.key == opening or record.key in self.arrivals:
                self._add(record, undecided)
        self.next_offset = max(self.next_offset, end)

    def _add(self, record: Record, undecided: Journal) -> None:
        kind = kind_of_record(record, self.partitions, self.epoch, undecided)
        if isinstance(kind, Event):
            if record.key in self.arrivals:
                self.arrivals[record.key].append(decode_arrival(record, kind))
            if self.journal.verdicts.get(identity(record.topic, kind.metadata, record.value)) == "foreign":
                return  # it opens no epoch
        self.epoch = epoch_after(kind, self.epoch)


def with_verdicts(arrivals: Iterable[Arrival], verdicts: Mapping[Judged, RecordVerdict]) -> list[Arrival]:
    """Returns the events with their verdicts."""

    def verdict(arrival: Arrival) -> RecordVerdict | None:
        return verdicts.get(identity(arrival.record.topic, arrival.kind.metadata, arrival.record.value))

    return [arrival._replace(kind=Event(arrival.kind.metadata, verdict(arrival))) for arrival in arrivals]
