"""Decisions of `site.journal` on rows that were made before them: the stream's key is folded anew.

One transaction, which holds the read model's position, takes away what the key's events had brought under the
decisions before, and applies them from version 1 on under those of now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import structlog
from confluent_kafka import KafkaException

from contracts.kernel.records import RecordVerdict
from services.kernel.log.rule import STREAMS, Journal, Judged, home_of
from services.projection.engine.key_events import KeyEvents, judged_by
from services.projection.engine.parking import apply_run, park, skipped_versions
from services.projection.engine.position import (
    CHANNEL,
    JUDGE,
    about,
    honoured,
    notification,
    require_own_tables,
)
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Arrival, Connection, ReadModel, TopicPartition
from services.projection.engine.row_fold import BEHIND, fold

# Nothing is asked of PostgreSQL while a long stream is read.
_READS_THE_LOG = "SET LOCAL idle_in_transaction_session_timeout = '60s'"
_HOLD = """
SELECT next_offset FROM position WHERE read_model = $1 AND topic = $2 AND partition = $3 FOR UPDATE"""
_UNPARK = "DELETE FROM parked WHERE read_model = $1 AND key = $2"
_FORGET = "DELETE FROM judged WHERE read_model = $1 AND stream = $2"
# a decision about a version takes the place of its having been left out
_UNSKIP = "DELETE FROM skipped WHERE read_model = $1 AND key = $2 AND version = ANY($3)"

log = structlog.get_logger(__name__)


class NotTheSame(Exception):
    """The key's row is not what its events give: what they had brought is not known."""


class Decisions:
    """Brings the rows of a projector's read models up to the decisions that are recorded."""

    def __init__(
        self, kafka: str, pool: asyncpg.Pool[Any], projector: Projector, journal: Callable[[], Journal]
    ) -> None:
        self._kafka, self._pool, self._projector, self._journal = kafka, pool, projector, journal
        self._refused: set[tuple[str, str, Any]] = set()

    async def honour(self) -> list[str]:
        """Fold anew what was decided about since; the keys, as `read_model:key`."""
        latest, done = self._journal(), list[str]()
        for place, streams in (await self._due(latest)).items():
            keys: dict[bytes | None, list[Arrival]] = {_key(stream).encode(): [] for stream in streams}
            events = KeyEvents(self._kafka, place, self._projector.partitions[place[0]], latest, keys)
            try:
                await asyncio.to_thread(events.read_to, self._furthest(place))
                for stream, models in streams.items():
                    for model in models:
                        await self._anew(model, stream, events, latest)
                        done.append(f"{model.name}:{_key(stream)}")
            except (KafkaException, TimeoutError) as error:
                log.warning("decisions_wait", reason=str(error))
        return done

    def _furthest(self, place: TopicPartition) -> int:
        positions = self._projector.positions.values()
        return max((at[place].next_offset for at in positions if place in at), default=0)

    async def _due(self, latest: Journal) -> dict[TopicPartition, dict[str, list[ReadModel[Any]]]]:
        """By partition the streams whose decisions are not honoured, and by which read models."""
        due: dict[TopicPartition, dict[str, list[ReadModel[Any]]]] = {}
        async with self._pool.acquire() as connection:
            for name, model in self._projector.models.items():
                if not self._projector.positions[name]:
                    continue
                if not latest.verdicts:
                    self._projector.honoured[name] = latest
                    continue
                known = await honoured(connection, model, latest)
                if known is latest:
                    self._projector.honoured[name] = latest
                changed = about(model, known).items() ^ about(model, latest).items()
                for stream in {judged.stream for judged, _ in changed}:
                    topic = next(topic for topic, called in STREAMS.items() if called == model.stream)
                    place = topic, home_of(_key(stream), self._projector.partitions[topic])
                    refused = (name, stream, _verdicts(stream, latest)) in self._refused
                    if place in self._projector.positions[name] and not refused:
                        due.setdefault(place, {}).setdefault(stream, []).append(model)
        return due

    async def _anew(self, model: ReadModel[Any], stream: str, events: KeyEvents, latest: Journal) -> None:
        """No batch is applied meanwhile: one that was read before knows nothing of the decision."""
        name = model.name
        async with self._projector.locks[name], self._pool.acquire() as connection:
            try:
                async with connection.transaction():
                    await connection.execute(_READS_THE_LOG)
                    end = await connection.fetchval(_HOLD, name, *events.place)
                    await require_own_tables(connection, [model])
                    await asyncio.to_thread(events.read_to, end)
                    found = events.found[_key(stream).encode()]
                    before = await honoured(connection, model, latest)
                    await fold_anew(
                        connection,
                        model,
                        stream,
                        [event for event in found if event.record.offset < end],
                        before,
                        latest,
                    )
            except NotTheSame as error:
                self._refused.add((name, stream, _verdicts(stream, latest)))
                log.error("decision_not_honoured", reason=str(error), next=f"`./daybook rebuild {name}`")
            self._projector.honoured[name] = await honoured(connection, model, latest)


async def fold_anew(
    connection: Connection,
    model: ReadModel[Any],
    stream: str,
    events: Sequence[Arrival],
    before: Journal,
    latest: Journal,
) -> None:
    """Replace a key's rows by what its events are under the latest decisions. Raises `NotTheSame`."""
    key, store = _key(stream), model.store(model.name)
    row = (await store.load(connection, [key])).get(key)
    if row is not None:
        skipped = await skipped_versions(connection, model.name, [key])
        own = [event for event in events if event.kind.metadata.version <= row.version]
        brought = fold(model, {}, judged_by(own, before.verdicts), skipped).rows.get(key)
        if brought is None or brought.version != row.version:
            raise NotTheSame(f"{model.name} {key} is at version {row.version}, which its events do not give")
        await store.forget(connection, key, brought.row)
    judged = _verdicts(stream, latest)
    await connection.execute(_UNPARK, model.name, key)
    await connection.execute(_UNSKIP, model.name, key, [about.version for about, _ in judged])
    run = judged_by(events, latest.verdicts)
    done, stop = await apply_run(connection, model, run) if run else (0, None)
    for event in run[done:]:
        await park(connection, model.name, event, stop or BEHIND)
        stop = None
    await connection.execute(_FORGET, model.name, stream)
    await connection.executemany(JUDGE, [(model.name, *about, verdict) for about, verdict in judged])
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, notification(model.name, [key]))


def _key(stream: str) -> str:
    return stream.partition("/")[2]


def _verdicts(stream: str, journal: Journal) -> frozenset[tuple[Judged, RecordVerdict]]:
    return frozenset(one for one in journal.verdicts.items() if one[0].stream == stream)
