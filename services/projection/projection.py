"""The projection process: source, agents and watchdog around one projector."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import structlog

from services.kernel.collector import keep_what_is_here
from services.kernel.projector import Projector
from services.kernel.read_model import TopicPartition
from services.projection import metrics
from services.projection.agents import add_agents
from services.projection.database import migrate, pool
from services.projection.parked import PARKED_KEYS
from services.projection.read_models import READ_MODELS
from services.projection.settings import ProjectionSettings
from services.projection.source import Source, Stalled

OBSERVE_SECONDS = 1.0
START_SECONDS = 120.0
STOP_SECONDS = 10.0

_SAVE_LAG = """
INSERT INTO lag (read_model, topic, partition, events, seconds)
SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[], $5::float8[])
ON CONFLICT (read_model, topic, partition)
DO UPDATE SET events = excluded.events, seconds = excluded.seconds, observed_at = now()"""

log = structlog.get_logger(__name__)


@dataclass
class Health:
    """`reason` says why the process is not ready; None when it is."""

    reason: str | None = "starting"


@dataclass
class Watch:
    """Lag and progress. `caught_up` is when each read model was last seen at the end of a partition."""

    source: Source
    pool: asyncpg.Pool[Any]
    stall_seconds: float
    caught_up: dict[tuple[str, TopicPartition], float] = field(default_factory=dict)
    before: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    moved: float = field(default_factory=time.monotonic)

    async def observe(self) -> None:
        """Once. Raises `Stalled` after `stall_seconds` without progress while behind."""
        behind = await self.source.lags()
        now = time.monotonic()
        places = {
            key: self.source.projector.positions[key[0]][key[1]].next_offset
            for key in behind
            if key[1] in self.source.projector.positions[key[0]]
        }
        if places != self.before or not any(behind.values()):
            self.before, self.moved = places, now
        if now - self.moved > self.stall_seconds:
            raise Stalled(f"nothing applied for {self.stall_seconds:g} s: {behind}")
        seconds = {key: self._seconds(key, events, now) for key, events in behind.items()}
        self._tell(places, behind, seconds)
        await self._save(behind, seconds)
        await self.source.commit_for_dashboards({place for _, place in behind})

    def _seconds(self, key: tuple[str, TopicPartition], events: int, now: float) -> float:
        if not events:
            self.caught_up[key] = now
        return now - self.caught_up.setdefault(key, now)

    def _tell(
        self,
        places: Mapping[tuple[str, TopicPartition], int],
        behind: Mapping[tuple[str, TopicPartition], int],
        seconds: Mapping[tuple[str, TopicPartition], float],
    ) -> None:
        for (name, (topic, partition)), at in places.items():
            labels = (name, topic, str(partition))
            metrics.POSITION.labels(*labels).set(at)
            metrics.LAG_EVENTS.labels(*labels).set(behind[name, (topic, partition)])
            metrics.LAG_SECONDS.labels(*labels).set(seconds[name, (topic, partition)])

    async def _save(
        self,
        behind: Mapping[tuple[str, TopicPartition], int],
        seconds: Mapping[tuple[str, TopicPartition], float],
    ) -> None:
        async with self.pool.acquire() as connection:
            names, topics = [name for name, _ in behind], [topic for _, (topic, _) in behind]
            partitions = [partition for _, (_, partition) in behind]
            values = list(behind.values()), [seconds[key] for key in behind]
            await connection.execute(_SAVE_LAG, names, topics, partitions, *values)
            parked = {row["read_model"]: row["keys"] for row in await connection.fetch(PARKED_KEYS)}
        for name in self.source.projector.models:
            metrics.PARKED.labels(name).set(parked.get(name, 0))


async def run(settings: ProjectionSettings, stop: asyncio.Event, health: Health) -> None:
    """Project until `stop`. Whatever it raises must end the process: the supervisor starts it again."""
    async with pool(settings.database_url, len(READ_MODELS) + 2) as connections:
        async with connections.acquire() as connection:
            await migrate(connection, READ_MODELS)
        projector = Projector(
            connections, READ_MODELS, max_parked_keys=settings.max_parked_keys, committed=metrics.committed
        )
        source = Source(settings, projector)
        failed = add_agents(source, settings.batch_events)
        await source.start()
        try:
            await source.started(START_SECONDS)
            keep_what_is_here()
            health.reason = None
            log.info("projecting", read_models=sorted(projector.models))
            await _watch(Watch(source, connections, settings.stall_seconds), failed, stop)
        finally:
            health.reason = "stopping"
            await asyncio.wait_for(source.stop(), STOP_SECONDS)


async def _watch(watch: Watch, failed: asyncio.Future[None], stop: asyncio.Event) -> None:
    stopped = asyncio.ensure_future(stop.wait())
    waited: set[asyncio.Future[Any]] = {failed, stopped}
    try:
        while not stop.is_set():
            await asyncio.wait(waited, timeout=OBSERVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
            watch.source.check()
            await asyncio.wait_for(watch.observe(), watch.stall_seconds)
    finally:
        stopped.cancel()
