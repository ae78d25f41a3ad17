"""How far the read models are behind the log, measured by the query API.

It asks PostgreSQL for the positions and the broker for what is left behind them, and never the projection:
the result is true while that is dead, frozen or held up. What cannot be known is None, not an old number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncpg
import structlog

from services.kernel.log.tail import Behind, LogTail, NotKnown, Partition
from services.kernel.record.envelope import format_time, now_micros
from services.projection.engine.parked_keys import PARKED_KEYS
from services.projection.engine.read_model import DATABASE_AWAY, ReadModel

REFRESH_SECONDS = 1.0
ASK_SECONDS = 2.0
KNOWN_SECONDS = 5.0  # a measurement that is older says nothing any more
STALLED_SECONDS = 10.0  # events wait and none is applied for so long: the query API is not ready
_NOTHING = Behind(0, None)
_POSITIONS = "SELECT * FROM position WHERE read_model = ANY($1)"

log = structlog.get_logger(__name__)


class LagPlace(NamedTuple):
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
class Stored:
    """What PostgreSQL says. `read_at` is monotonic seconds, `observed_at` micros UTC."""

    read_at: float
    observed_at: int
    positions: Mapping[LagPlace, AppliedPosition]
    parked: Mapping[str, int]


@dataclass(frozen=True)
class Measured:
    """What was left behind each position when it was stored."""

    stored: Stored
    behind: Mapping[LagPlace, Behind]

    def seconds(self, place: LagPlace) -> float:
        """The age of the oldest event that is not applied; 0 where all are."""
        oldest = self.behind[place].oldest_ms
        return 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)

    def events(self, read_model: str) -> int:
        """How many the read model has not applied, over all partitions."""
        return sum(behind.records for place, behind in self.behind.items() if place.read_model == read_model)


class Lag:
    """`follow` measures; `stored` and `measured` are what is known now, None where it is not."""

    def __init__(self, kafka: str, models: Sequence[ReadModel[Any]]) -> None:
        self._tail, self._models = LogTail(kafka), models
        self._topics = sorted({topic for model in models for topic in model.topics})
        self._stored: Stored | None = None
        self._measured: Measured | None = None
        self._stalled: str | None = None
        self._why_unknown = ""

    async def follow(self, connections: asyncpg.Pool[Any]) -> None:
        """Measures for ever."""
        while True:
            try:
                await self._measure(connections)
                why = ""
            except (*DATABASE_AWAY, asyncpg.PostgresError) as error:
                self._stored, self._measured, why = None, None, f"PostgreSQL: {error!r}"
            except NotKnown as error:
                self._measured, why = None, f"broker: {error}"
            if why and not self._why_unknown:
                log.warning("lag_not_known", reason=why)
            self._why_unknown = why
            await asyncio.sleep(REFRESH_SECONDS)

    @property
    def stored(self) -> Stored | None:
        return self._stored if self._stored and _fresh(self._stored) else None

    @property
    def measured(self) -> Measured | None:
        return self._measured if self._measured and _fresh(self._measured.stored) else None

    def seconds(self) -> float | None:
        """Of the read model that is furthest behind."""
        if (measured := self.measured) is None:
            return None
        return max(map(measured.seconds, measured.behind), default=0.0)

    def stalled(self) -> str | None:
        """Since when events wait and none is applied, if for too long.

        While the broker is silent, that is what was last known: nothing can have been applied since.
        """
        return self._stalled

    async def _measure(self, connections: asyncpg.Pool[Any]) -> None:
        read_at, observed_at = time.monotonic(), now_micros()
        async with asyncio.timeout(ASK_SECONDS), connections.acquire() as connection:
            rows = await connection.fetch(_POSITIONS, [model.name for model in self._models])
            parked = {row["read_model"]: row["keys"] for row in await connection.fetch(PARKED_KEYS)}
        parked = {model.name: parked.get(model.name, 0) for model in self._models}
        stored = {
            LagPlace(row["read_model"], row["topic"], row["partition"]): AppliedPosition(
                row["next_offset"], row["applied_at"]
            )
            for row in rows
        }
        self._stored = Stored(read_at, observed_at, stored, parked)
        measured = await asyncio.to_thread(self._ask_the_log, self._stored)
        self._stalled = _stalled(measured, self._measured)
        self._measured = measured

    def _ask_the_log(self, stored: Stored) -> Measured:
        partitions = self._tail.partitions(self._topics, ASK_SECONDS)
        if {topic for topic, _ in partitions} != set(self._topics):
            raise NotKnown(f"the broker does not have all of {', '.join(self._topics)}")
        at = {place: _position(stored, place)[0] for place in self._places(partitions)}
        behind = self._tail.behind(
            {((place.topic, place.partition), offset) for place, offset in at.items()}, ASK_SECONDS
        )
        return Measured(
            stored,
            {place: behind[(place.topic, place.partition), offset] for place, offset in at.items()},
        )

    def _places(self, partitions: Sequence[Partition]) -> Sequence[LagPlace]:
        """Also those where a read model stands nowhere yet: there it has applied nothing."""
        return [
            LagPlace(model.name, topic, partition)
            for model in self._models
            for topic, partition in partitions
            if topic in model.topics
        ]


def _position(stored: Stored, place: LagPlace) -> AppliedPosition:
    return stored.positions.get(place, AppliedPosition(0, None))


def _fresh(stored: Stored) -> bool:
    return time.monotonic() - stored.read_at < KNOWN_SECONDS


def _stalled(measured: Measured, before: Measured | None) -> str | None:
    """Which read models apply nothing, and since when; None where each one moves, or has nothing to do.

    Two measurements must say so: an event may be old when it arrives, from another site.
    """
    late: dict[str, int] = {}
    for place, (_, oldest_ms) in measured.behind.items():
        position = _position(measured.stored, place)
        if oldest_ms is None or before is None or not before.behind.get(place, _NOTHING).records:
            continue
        since = max(position.applied_at or 0, oldest_ms * 1000)
        too_long = measured.stored.observed_at - since > STALLED_SECONDS * 1_000_000
        if too_long and _position(before.stored, place) == position:
            late[place.read_model] = min(since, late.get(place.read_model, since))
    if not late:
        return None
    events = max(measured.events(name) for name in late)
    since_text = format_time(min(late.values()))
    return f"nothing was applied to {', '.join(late)} since {since_text}, and {events} events wait"
