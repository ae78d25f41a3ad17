"""Faust as the source of the projection (why: docs/adr/0005-faust.md), with an agent for each read model.

Faust reads aborted records and keeps its position in Kafka. This source reads committed records only, starts at the
positions in PostgreSQL, and delivers each fetched run of a partition as one `Batch`: a tenth of the cost per event.
`PINNED` lists the private names that it uses; they are checked at start.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Any, cast

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import OffsetOutOfRangeError
from faust.transport.consumer import Consumer as FaustConsumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from services.kernel.log.clients import Connection
from services.kernel.log.reader import partition_counts
from services.projection import ProjectionError
from services.projection.engine.position import LogReplaced, log_truncated, require_positions_in_log
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Batch, OtherCode, ReadModel, Stopped
from services.projection.engine.settings import ProjectionSettings

PINNED: Mapping[type, tuple[str, ...]] = {
    driver.AIOKafkaConsumerThread: ("_create_worker_consumer", "_commit", "_ensure_consumer"),
    driver.Consumer: ("_new_consumer_thread", "_getmany", "_to_message", "_commit"),
    FaustConsumer: ("perform_seek", "seek_to_committed"),
}
PINNED_ATTRIBUTES = ("_isolation_level", "_fetch_max_wait_ms", "_fetcher", "_client")
METADATA_SECONDS = 10  # a recreated topic has no partitions until the next refresh; by default after 300 s


class UnsupportedVersion(ProjectionError):
    """Faust or aiokafka lacks a name that this module needs: the locked versions were changed."""


class Stalled(Stopped):
    """Behind, and nothing was applied for too long: the fetcher is dead, or PostgreSQL does not respond."""


def check_pinned() -> None:
    """Raises `UnsupportedVersion` if a private name is missing."""
    missing = [
        f"{owner.__name__}.{name}"
        for owner, names in PINNED.items()
        for name in names
        if not hasattr(owner, name)
    ]
    if missing:
        raise UnsupportedVersion(f"gone from faust: {', '.join(missing)}")


class Thread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The thread that fetches."""

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        missing = [name for name in PINNED_ATTRIBUTES if not hasattr(consumer, name)]
        if missing:
            raise UnsupportedVersion(f"gone from aiokafka: {', '.join(missing)}")
        consumer._isolation_level = "read_committed"  # Faust offers no setting for it
        consumer._fetch_max_wait_ms = int(self.app.fetch_wait_seconds * 1000)
        consumer._client._metadata_max_age_ms = METADATA_SECONDS * 1000
        return consumer

    async def isolation(self) -> str:
        """Returns the isolation level of the running fetcher."""
        return cast(str, self._ensure_consumer()._fetcher._isolation_level)


class Consumer(driver.Consumer):  # type: ignore[misc]
    """Starts at the positions in PostgreSQL; `next`: the offset after the last fetched record. Faust's `TP` is a tuple
    and equals our (topic, partition)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.next: dict[TP, int] = {}

    def _new_consumer_thread(self) -> Thread:
        return Thread(self, loop=self.loop, beacon=self.beacon)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        self.next = {}  # drops batches that were fetched before the seek
        counts = await asyncio.to_thread(partition_counts, self.app.kafka)
        try:
            starts: dict[TP, int] = await self.app.projector.assigned(self.assignment(), counts)
            positions = {
                name: {tp: position.next_offset for tp, position in stored.items()}
                for name, stored in self.app.projector.positions.items()
            }
            await asyncio.to_thread(require_positions_in_log, self.app.kafka, positions)
        except (OtherCode, LogReplaced) as error:
            raise self.app.stop_for(error) from error
        await self.seek_wait(starts)
        self.next = dict(starts)
        return starts

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Any]:
        try:
            fetched = await super()._getmany(active_partitions, timeout)
        except OffsetOutOfRangeError as error:
            lost = {(tp.topic, tp.partition): offset for tp, offset in error.args[0].items()}
            raise self.app.stop_for(log_truncated(lost)) from error
        return {
            tp: [self._batch(tp, records)] for tp, records in fetched.items() if records and tp in self.next
        }

    def _batch(self, tp: TP, records: list[Any]) -> Batch:
        batch = Batch((tp.topic, tp.partition), self.app.projector.seek, self.next[tp], records)
        self.next[tp] = batch.next_offset
        return batch

    def _to_message(self, tp: TP, batch: Batch) -> ConsumerMessage:
        last = cast(Any, batch.records[-1])
        return ConsumerMessage(
            topic=tp.topic,
            partition=tp.partition,
            offset=last.offset,
            timestamp=last.timestamp / 1000,
            timestamp_type=last.timestamp_type,
            headers=[],
            key=None,
            value=batch,
            checksum=None,
            tp=tp,
            generation_id=self.app.consumer_generation_id,
        )


class Transport(driver.Transport):  # type: ignore[misc]
    Consumer = Consumer


class Source(faust.App):  # type: ignore[misc]
    """A Faust app that feeds a projector."""

    def __init__(self, settings: ProjectionSettings, projector: Projector) -> None:
        check_pinned()
        super().__init__(
            settings.projection_group,
            **Connection(settings.kafka).faust(),
            web_enabled=False,
            topic_disable_leader=True,
            topic_allow_declare=False,
            table_standby_replicas=0,
            stream_wait_empty=False,
            stream_buffer_maxsize=64,
            consumer_auto_offset_reset="none",
            # Without a name, the group waits until the session of a killed predecessor ends.
            consumer_group_instance_id=settings.projection_instance or None,
            broker_session_timeout=settings.session_seconds,
            broker_heartbeat_interval=settings.session_seconds / 4,
            broker_max_poll_records=settings.batch_events,
            datadir=Path(gettempdir(), "daybook-faust"),  # Faust requires it; nothing is written there
        )
        self.projector, self.fetch_wait_seconds = projector, settings.fetch_wait_seconds
        self.kafka = settings.kafka
        self._stop_error: Stopped | None = None
        self.transport = Transport(self.conf.broker_consumer, self)
        self.on_partitions_revoked.connect(self._forget)

    async def _forget(self, *_: Any, **__: Any) -> None:
        await self.projector.revoked()

    async def started(self, seconds: float) -> None:
        """Waits for the first assignment. Raises `UnsupportedVersion` if the fetcher reads aborted records."""
        async with asyncio.timeout(seconds):
            while not self.consumer.next:
                self.check()
                await asyncio.sleep(0.05)
        isolation = await self.consumer._thread.call_thread(self.consumer._thread.isolation)
        if isolation not in ("read_committed", 1):
            raise UnsupportedVersion(f"the fetcher's isolation level is {isolation!r}")

    def stop_for(self, error: Stopped) -> Stopped:
        """Keeps the error for `check`: Faust would only log it."""
        self._stop_error = error
        return error

    def check(self) -> None:
        """Raises `Stopped` if the fetcher has stopped for good."""
        if self._stop_error is not None:
            raise self._stop_error
        if self.crashed:
            raise Stalled(f"faust crashed: {self.crash_reason!r}")
        if self._fetcher is not None and self._fetcher.crashed:
            raise Stalled("the fetcher crashed")

    async def lags(self) -> dict[tuple[str, TP], int]:
        """Returns the events up to the last stable offset, by read model and partition. Markers and aborted records at
        the end are not events: if all fetched records are applied, the consumer's own position counts."""
        tps = [tp for tp in self.consumer.assignment() if tp in self.consumer.next]
        ends = await self.consumer.highwaters(*tps)
        behind = {}
        for tp in tps:
            fetched_to = await self.consumer.position(tp)
            for name, positions in self.projector.positions.items():
                if tp in positions:
                    offset = positions[tp].next_offset
                    if offset == self.consumer.next.get(tp):
                        offset = max(offset, fetched_to)
                    behind[name, tp] = max(0, ends[tp] - offset)
        return behind

    async def commit_for_dashboards(self, tps: Iterable[TP]) -> None:
        """Commits the least position to Kafka, only for consumer-lag tools."""
        stored = self.projector.positions.values()
        offsets = {tp: min(at[tp].next_offset for at in stored if tp in at) for tp in tps}
        if offsets:
            await self.consumer._commit(offsets)


def add_agents(source: Source, batch_events: int) -> asyncio.Future[None]:
    """Adds an agent per read model; the future fails with the error that stopped one of them."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # acks=False: PostgreSQL stores the position, so Faust commits nothing.
    topics = {
        name: source.topic(name, value_serializer="raw", acks=False)
        for name in sorted({topic for model in source.projector.models.values() for topic in model.topics})
    }
    for model in source.projector.models.values():
        for topic in model.topics:
            source.agent(topics[topic], name=f"{model.name}.{topic}")(
                _agent(source, model, batch_events, failed)
            )
    return failed


def _agent(source: Source, model: ReadModel[Any], batch_events: int, failed: asyncio.Future[None]) -> Any:
    async def project(stream: Any) -> None:
        try:
            await _apply_all(source, model, stream, stream.channel.queue.empty, batch_events)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if not failed.done():
                failed.set_exception(error)
            # Faust would restart the agent after the event: wait for the process to end instead.
            await asyncio.Event().wait()

    return project


async def _apply_all(
    source: Source, model: ReadModel[Any], stream: AsyncIterator[Batch], drained: Any, batch_events: int
) -> None:
    pending: list[Batch] = []
    async for batch in stream:
        pending.append(batch)
        if drained() or sum(len(fetched.records) for fetched in pending) >= batch_events:
            await source.projector.apply(model.name, pending)
            pending = []
