"""The query API measures how far the read models are behind the log.

It reads the positions from PostgreSQL and the log's ends from the broker, and never asks the projection: the lag is
right even if the projection is dead, frozen or blocked. An unknown lag is None, never an old number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncpg
import structlog
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.kernel.log.reader import Behind, LogTail, NotKnown, Partition
from services.kernel.record.envelope import format_time, now_micros
from services.projection.engine.parked_keys import PARKED_KEYS
from services.projection.engine.read_model import DATABASE_ERRORS, ReadModel

REFRESH_SECONDS = 1.0
REQUEST_SECONDS = 2.0
KNOWN_SECONDS = 5.0  # an older measurement is discarded
STALLED_SECONDS = 10.0  # if events wait and none is applied for so long, the query API is not ready
_NOTHING = Behind(0, None)
PLACE = ("read_model", "topic", "partition")
_POSITIONS = "SELECT * FROM position WHERE read_model = ANY($1)"

log = structlog.get_logger(__name__)


class LagPartition(NamedTuple):
    """One partition of one read model's log."""

    read_model: str
    topic: str
    partition: int

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.read_model, self.topic, str(self.partition)


class AppliedPosition(NamedTuple):
    """The next offset to apply, and when the one before was applied (micros UTC; None: none ever was)."""

    next_offset: int
    applied_at: int | None


@dataclass(frozen=True)
class StoredPositions:
    """The positions in PostgreSQL. `read_at` is monotonic seconds, `observed_at` micros UTC."""

    read_at: float
    observed_at: int
    positions: Mapping[LagPartition, AppliedPosition]
    parked: Mapping[str, int]


@dataclass(frozen=True)
class LagMeasurement:
    """How much of the log lay behind each position when it was stored."""

    stored: StoredPositions
    behind: Mapping[LagPartition, Behind]

    def seconds(self, tp: LagPartition) -> float:
        """Returns the age of the oldest event that is not applied; 0 if all are."""
        oldest = self.behind[tp].oldest_ms
        return 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)

    def events(self, read_model: str) -> int:
        """Returns how many events the read model has not applied, over all partitions."""
        return sum(behind.records for tp, behind in self.behind.items() if tp.read_model == read_model)


class Lag:
    """`follow` measures; `stored` and `measured` are the latest results, None if unknown."""

    def __init__(self, kafka: str, models: Sequence[ReadModel[Any]]) -> None:
        self._tail, self._models = LogTail(kafka), models
        self._topics = sorted({topic for model in models for topic in model.topics})
        self._stored: StoredPositions | None = None
        self._measured: LagMeasurement | None = None
        # Since when events wait and none is applied, if for too long. While the broker does not respond, this is the
        # last result: nothing can have been applied since.
        self.stalled: str | None = None
        self._why_unknown = ""

    async def follow(self, connections: asyncpg.Pool[Any]) -> None:
        """Measures until cancelled."""
        while True:
            try:
                await self._measure(connections)
                why = ""
            except DATABASE_ERRORS as error:
                self._stored, self._measured, why = None, None, f"PostgreSQL: {error!r}"
            except NotKnown as error:
                self._measured, why = None, f"broker: {error}"
            if why and not self._why_unknown:
                log.warning("lag_not_known", reason=why)
            self._why_unknown = why
            await asyncio.sleep(REFRESH_SECONDS)

    @property
    def stored(self) -> StoredPositions | None:
        return self._stored if self._stored and _fresh(self._stored) else None

    @property
    def measured(self) -> LagMeasurement | None:
        return self._measured if self._measured and _fresh(self._measured.stored) else None

    def seconds(self) -> float | None:
        """Returns the lag of the read model that is furthest behind."""
        if (measured := self.measured) is None:
            return None
        return max(map(measured.seconds, measured.behind), default=0.0)

    async def _measure(self, connections: asyncpg.Pool[Any]) -> None:
        read_at, observed_at = time.monotonic(), now_micros()
        async with asyncio.timeout(REQUEST_SECONDS), connections.acquire() as connection:
            rows = await connection.fetch(_POSITIONS, [model.name for model in self._models])
            parked = {row["read_model"]: row["keys"] for row in await connection.fetch(PARKED_KEYS)}
        parked = {model.name: parked.get(model.name, 0) for model in self._models}
        stored = {
            LagPartition(row["read_model"], row["topic"], row["partition"]): AppliedPosition(
                row["next_offset"], row["applied_at"]
            )
            for row in rows
        }
        self._stored = StoredPositions(read_at, observed_at, stored, parked)
        measured = await asyncio.to_thread(self._measure_log, self._stored)
        self.stalled = _stalled(measured, self._measured)
        self._measured = measured

    def _measure_log(self, stored: StoredPositions) -> LagMeasurement:
        partitions = self._tail.partitions(self._topics, REQUEST_SECONDS)
        if {topic for topic, _ in partitions} != set(self._topics):
            raise NotKnown(f"the broker does not have all of {', '.join(self._topics)}")
        offsets = {tp: _position(stored, tp)[0] for tp in self._partitions_of_models(partitions)}
        behind = self._tail.behind(
            {((tp.topic, tp.partition), offset) for tp, offset in offsets.items()}, REQUEST_SECONDS
        )
        return LagMeasurement(
            stored, {tp: behind[(tp.topic, tp.partition), offset] for tp, offset in offsets.items()}
        )

    def _partitions_of_models(self, partitions: Sequence[Partition]) -> Sequence[LagPartition]:
        """Includes partitions without a position: there the read model has applied nothing."""
        return [
            LagPartition(model.name, topic, partition)
            for model in self._models
            for topic, partition in partitions
            if topic in model.topics
        ]


def _position(stored: StoredPositions, tp: LagPartition) -> AppliedPosition:
    return stored.positions.get(tp, AppliedPosition(0, None))


def _fresh(stored: StoredPositions) -> bool:
    return time.monotonic() - stored.read_at < KNOWN_SECONDS


def _stalled(measured: LagMeasurement, before: LagMeasurement | None) -> str | None:
    """Returns which read models apply nothing, and since when; None if each one moves or is caught up. Two
    measurements must agree: an event of another site may be old when it arrives."""
    late: dict[str, int] = {}
    for tp, (_, oldest_ms) in measured.behind.items():
        position = _position(measured.stored, tp)
        if oldest_ms is None or before is None or not before.behind.get(tp, _NOTHING).records:
            continue
        since = max(position.applied_at or 0, oldest_ms * 1000)
        too_long = measured.stored.observed_at - since > STALLED_SECONDS * 1_000_000
        if too_long and _position(before.stored, tp) == position:
            late[tp.read_model] = min(since, late.get(tp.read_model, since))
    if not late:
        return None
    events = max(measured.events(name) for name in late)
    since_text = format_time(min(late.values()))
    return f"nothing was applied to {', '.join(late)} since {since_text}, and {events} events wait"


class LagMetrics(Collector):
    """Collects the lag of the read models at each scrape; unknown values are absent."""

    def __init__(self, lag: Lag) -> None:
        self._lag = lag

    def describe(self) -> Iterable[Metric]:
        """Describes nothing: otherwise the registry would collect before there are values."""
        return ()

    def collect(self) -> Iterable[Metric]:
        stored, measured = self._lag.stored, self._lag.measured
        known_gauge = GaugeMetricFamily("daybook_lag_known", "1 where the lag is known, else 0")
        known_gauge.add_metric((), float(measured is not None))
        yield known_gauge
        events = GaugeMetricFamily("daybook_lag_events", "Events not applied yet", labels=PLACE)
        seconds = GaugeMetricFamily(
            "daybook_lag_seconds", "Age of the oldest event that is not applied yet", labels=PLACE
        )
        if measured:
            for tp, behind in measured.behind.items():
                events.add_metric(tp.labels, behind.records)
                seconds.add_metric(tp.labels, measured.seconds(tp))
        yield from (events, seconds)
        positions = GaugeMetricFamily("daybook_position", "Next offset to apply", labels=PLACE)
        parked = GaugeMetricFamily(
            "daybook_parked_keys", "Keys that wait behind an event that cannot be applied", labels=PLACE[:1]
        )
        if stored:
            for tp, position in stored.positions.items():
                positions.add_metric(tp.labels, position.next_offset)
            for name, keys in stored.parked.items():
                parked.add_metric((name,), keys)
        yield from (positions, parked)
