"""The projection process: source, agents and watchdog around one projector."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import structlog

from services.kernel.collector import keep_what_is_here
from services.kernel.log.foreign import FOREIGN
from services.kernel.log.journal import JournalWatch
from services.projection.engine import metrics
from services.projection.engine.agents import add_agents
from services.projection.engine.database import WRITER_SETTINGS, migrate, pool
from services.projection.engine.decisions import Decisions
from services.projection.engine.parked_keys import retry_readable
from services.projection.engine.position import require_own_tables
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import DATABASE_AWAY, ForeignRecord, PositionLost, TopicPartition
from services.projection.engine.settings import ProjectionSettings
from services.projection.engine.source import Source, Stalled
from services.projection.read_models import READ_MODELS

OBSERVE_SECONDS = 1.0
OBSERVED_SECONDS = 10.0  # no look at the broker and PostgreSQL for so long: not ready
START_SECONDS = 120.0
STOP_SECONDS = 10.0
NAMED = 100  # foreign records of one transaction that the log names one by one

log = structlog.get_logger(__name__)


@dataclass
class Health:
    """`reason` says why the process is not ready; `observed` is when it last was well (monotonic seconds)."""

    reason: str | None = "starting"
    observed: float = 0.0

    def not_ready(self) -> str | None:
        """None when the process is ready."""
        if self.reason is None and time.monotonic() - self.observed > OBSERVED_SECONDS:
            return "the broker or PostgreSQL does not answer"
        return self.reason


@dataclass
class Watch:
    """Whether the read models move. The query API measures how far they are behind."""

    source: Source
    pool: asyncpg.Pool[Any]
    stall_seconds: float
    before: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    moved: float = field(default_factory=time.monotonic)

    async def observe(self) -> None:
        """Once. Raises `Stalled` after `stall_seconds` without progress while behind, and `OtherCode`."""
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
        # An idle projection notices too that PostgreSQL is away, or that a rebuild changed the tables.
        await require_own_tables(self.pool, self.source.projector.models.values())
        await self.source.commit_for_dashboards({place for _, place in behind})


async def run(settings: ProjectionSettings, stop: asyncio.Event, health: Health) -> None:
    """Project until `stop`. Whatever it raises must end the process: the supervisor starts it again."""
    await _database_there(settings.database_url, START_SECONDS)
    async with pool(settings.database_url, len(READ_MODELS) + 3, WRITER_SETTINGS) as connections:
        async with connections.acquire() as connection:
            await migrate(connection, READ_MODELS)
            await require_own_tables(connection, READ_MODELS)
        watch = await asyncio.to_thread(JournalWatch, settings.kafka)
        projector = Projector(
            connections,
            READ_MODELS,
            max_parked_keys=settings.max_parked_keys,
            committed=metrics.committed,
            skipped=_count_foreign,
            journal=lambda: watch.journal,
        )
        decisions = Decisions(settings.kafka, connections, projector, lambda: watch.journal)
        source = Source(settings, projector)
        failed = add_agents(source, settings.batch_events)
        await source.start()
        deciding: asyncio.Task[None] | None = None
        try:
            await source.started(START_SECONDS)
            keep_what_is_here()
            health.reason, health.observed = None, time.monotonic()
            log.info("projecting", read_models=sorted(projector.models))
            deciding = asyncio.create_task(_decide(connections, decisions, failed))
            await _watch(Watch(source, connections, settings.stall_seconds), health, failed, stop)
        except PositionLost:
            await require_own_tables(connections, READ_MODELS)  # names the reason, where it is a rebuild
            raise
        finally:
            health.reason = "stopping"
            if deciding is not None:
                deciding.cancel()
            await asyncio.wait_for(source.stop(), STOP_SECONDS)


async def _database_there(url: str, seconds: float) -> None:
    """Return when PostgreSQL takes connections: who lost it starts sooner than it does."""
    until = time.monotonic() + seconds
    while True:
        try:
            return await (await asyncpg.connect(url)).close()
        except DATABASE_AWAY:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


def _count_foreign(records: Sequence[ForeignRecord]) -> None:
    """Name each once; of a flood the first."""
    for number, (topic, partition, offset, reason) in enumerate(records):
        FOREIGN.labels(topic).inc()
        if number < NAMED:
            position = f"{topic}/{partition}/{offset}"
            log.warning("foreign_record", position=position, reason=reason, next="`daybook streams list`")
    if len(records) > NAMED:
        log.warning("foreign_records", unnamed=len(records) - NAMED, next="`daybook streams list`")


async def _decide(connections: asyncpg.Pool[Any], decisions: Decisions, failed: asyncio.Future[None]) -> None:
    """Beside the agents: first what an older version of this process could not read, then what is decided."""
    try:
        async with connections.acquire() as connection:
            if keys := await retry_readable(connection, READ_MODELS):
                log.info("parked_keys_read", keys=keys[:NAMED], count=len(keys))
        while True:
            if keys := await decisions.honour():
                log.info("folded_anew", keys=keys[:NAMED], count=len(keys))
            await asyncio.sleep(OBSERVE_SECONDS)
    except Exception as error:
        if not failed.done():
            failed.set_exception(error)


async def _watch(watch: Watch, health: Health, failed: asyncio.Future[None], stop: asyncio.Event) -> None:
    stopped = asyncio.ensure_future(stop.wait())
    waited: set[asyncio.Future[Any]] = {failed, stopped}
    try:
        while not stop.is_set():
            await asyncio.wait(waited, timeout=OBSERVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
            watch.source.check()
            await asyncio.wait_for(watch.observe(), watch.stall_seconds)
            health.observed = time.monotonic()
    finally:
        stopped.cancel()
