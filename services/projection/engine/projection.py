"""The projection process: source, agents and watchdog around one projector."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import structlog
from prometheus_client import Counter, Histogram

from services.kernel.collector import keep_what_is_here
from services.kernel.log.control import JournalWatch
from services.kernel.log.rule import FOREIGN
from services.projection.engine.database import WRITER_SETTINGS, pool, require_migrated
from services.projection.engine.decisions import Decisions
from services.projection.engine.parked_keys import retry_readable
from services.projection.engine.position import require_own_tables
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import DATABASE_AWAY, ForeignRecord, PositionLost, TopicPartition
from services.projection.engine.settings import ProjectionSettings
from services.projection.engine.source import Source, Stalled, add_agents
from services.projection.read_models import READ_MODELS

OBSERVE_SECONDS = 1.0
OBSERVED_SECONDS = 10.0  # without a successful check of broker and PostgreSQL for so long: not ready
START_SECONDS = 120.0
STOP_SECONDS = 10.0
NAMED = 100  # foreign records of one transaction that are logged one by one

EVENTS = Counter("daybook_projected_events", "Events applied", ["read_model"])
BATCH = Histogram(
    "daybook_projection_batch_events",
    "Events per transaction",
    ["read_model"],
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
TRANSACTION = Histogram(
    "daybook_projection_transaction_seconds",
    "Fold and write, begin to commit",
    ["read_model"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
)

log = structlog.get_logger(__name__)


@dataclass
class Health:
    """`reason`: why the process is not ready; `observed`: its last successful check (monotonic seconds)."""

    reason: str | None = "starting"
    observed: float = 0.0

    def not_ready(self) -> str | None:
        """None when the process is ready."""
        if self.reason is None and time.monotonic() - self.observed > OBSERVED_SECONDS:
            return "the broker or PostgreSQL does not respond"
        return self.reason


@dataclass
class ProgressWatch:
    """Checks that the read models make progress. The query API measures their lag."""

    source: Source
    pool: asyncpg.Pool[Any]
    stall_seconds: float
    before: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    moved: float = field(default_factory=time.monotonic)

    async def observe(self) -> None:
        """Checks once. Raises `Stalled` after `stall_seconds` without progress while behind, and `OtherCode`."""
        behind = await self.source.lags()
        now = time.monotonic()
        current = {
            key: self.source.projector.positions[key[0]][key[1]].next_offset
            for key in behind
            if key[1] in self.source.projector.positions[key[0]]
        }
        if current != self.before or not any(behind.values()):
            self.before, self.moved = current, now
        if now - self.moved > self.stall_seconds:
            raise Stalled(f"nothing applied for {self.stall_seconds:g} s: {behind}")
        # So an idle projection also detects that PostgreSQL is down or that a rebuild changed the tables.
        await require_own_tables(self.pool, self.source.projector.models.values())
        await self.source.commit_for_dashboards({partition for _, partition in behind})


def _committed(read_model: str, events: int, seconds: float) -> None:
    EVENTS.labels(read_model).inc(events)
    BATCH.labels(read_model).observe(events)
    TRANSACTION.labels(read_model).observe(seconds)


async def run(settings: ProjectionSettings, stop: asyncio.Event, health: Health) -> None:
    """Runs the projection until `stop`. Any error must end the process: the supervisor restarts it."""
    await _wait_for_database(settings.database_url, START_SECONDS)
    async with pool(settings.database_url, len(READ_MODELS) + 3, WRITER_SETTINGS) as connections:
        async with connections.acquire() as connection:
            await require_migrated(connection, READ_MODELS)
            await require_own_tables(connection, READ_MODELS)
        watch = await asyncio.to_thread(JournalWatch, settings.kafka)
        projector = Projector(
            connections,
            READ_MODELS,
            max_parked_keys=settings.max_parked_keys,
            committed=_committed,
            skipped=_count_foreign,
            journal=lambda: watch.journal,
        )
        decisions = Decisions(settings.kafka, connections, projector, lambda: watch.journal)
        source = Source(settings, projector)
        failed = add_agents(source, settings.batch_events)
        async with running(source, STOP_SECONDS):
            decision_task: asyncio.Task[None] | None = None
            try:
                await source.started(START_SECONDS)
                keep_what_is_here()
                health.reason, health.observed = None, time.monotonic()
                log.info("projecting", read_models=sorted(projector.models))
                decision_task = asyncio.create_task(_apply_decisions(connections, decisions, failed))
                await _watch(ProgressWatch(source, connections, settings.stall_seconds), health, failed, stop)
            except (PositionLost, asyncpg.PostgresError):
                await require_own_tables(connections, READ_MODELS)  # names a rebuild, if it is the reason
                raise
            finally:
                health.reason = "stopping"
                if decision_task is not None:
                    decision_task.cancel()


@asynccontextmanager
async def running(source: Source, stop_seconds: float) -> AsyncIterator[None]:
    """Starts the source and stops it at the end. A source that does not stop in time raises `TimeoutError`, unless an
    error ended the block: that one is the reason why the process ends, and decides its exit code."""
    await source.start()
    try:
        yield
    except BaseException:
        with suppress(TimeoutError):
            await asyncio.wait_for(source.stop(), stop_seconds)
        raise
    await asyncio.wait_for(source.stop(), stop_seconds)


async def _wait_for_database(url: str, seconds: float) -> None:
    """Waits until PostgreSQL accepts connections: after an outage the projection may start first."""
    until = time.monotonic() + seconds
    while True:
        try:
            return await (await asyncpg.connect(url)).close()
        except DATABASE_AWAY:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


def _count_foreign(records: Sequence[ForeignRecord]) -> None:
    """Logs each record once; of many, only the first."""
    for number, (topic, partition, offset, reason) in enumerate(records):
        FOREIGN.labels(topic).inc()
        if number < NAMED:
            position = f"{topic}/{partition}/{offset}"
            log.warning("foreign_record", position=position, reason=reason, next="`daybook streams list`")
    if len(records) > NAMED:
        log.warning("foreign_records", unnamed=len(records) - NAMED, next="`daybook streams list`")


async def _apply_decisions(
    connections: asyncpg.Pool[Any], decisions: Decisions, failed: asyncio.Future[None]
) -> None:
    """Runs beside the agents: retries keys that an older version could not read, then applies decisions."""
    try:
        async with connections.acquire() as connection:
            if keys := await retry_readable(connection, READ_MODELS):
                log.info("parked_keys_read", keys=keys[:NAMED], count=len(keys))
        while True:
            if keys := await decisions.apply():
                log.info("refolded", keys=keys[:NAMED], count=len(keys))
            await asyncio.sleep(OBSERVE_SECONDS)
    except Exception as error:
        if not failed.done():
            failed.set_exception(error)


async def _watch(
    watch: ProgressWatch, health: Health, failed: asyncio.Future[None], stop: asyncio.Event
) -> None:
    stopped = asyncio.ensure_future(stop.wait())
    futures: set[asyncio.Future[Any]] = {failed, stopped}
    try:
        while not stop.is_set():
            await asyncio.wait(futures, timeout=OBSERVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
            watch.source.check()
            await asyncio.wait_for(watch.observe(), watch.stall_seconds)
            health.observed = time.monotonic()
    finally:
        stopped.cancel()
