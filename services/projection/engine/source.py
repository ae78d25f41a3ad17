"""Faust as the source: what it fetches, and from where, is decided here (why: docs/adr).

Stock Faust reads aborted records and keeps its position in Kafka. Ours reads committed only, stands where
PostgreSQL says, and hands on each fetched run of a partition as one `Batch`: its cost per event is a tenth.
The private names that this leans on are in `PINNED` and are checked at start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
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
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Batch, OtherCode, Stopped, TopicPartition
from services.projection.engine.replaced_log import LogReplaced, log_truncated, require_positions_in_log
from services.projection.engine.settings import ProjectionSettings
from services.projection.errors import ProjectionError

PINNED: Mapping[type, tuple[str, ...]] = {
    driver.AIOKafkaConsumerThread: ("_create_worker_consumer", "_commit", "_ensure_consumer"),
    driver.Consumer: ("_new_consumer_thread", "_getmany", "_to_message", "_commit"),
    FaustConsumer: ("perform_seek", "seek_to_committed"),
}
PINNED_ATTRIBUTES = ("_isolation_level", "_fetch_max_wait_ms", "_fetcher", "_client")
METADATA_SECONDS = 10  # a topic made anew leaves us without partitions until the next look; 300 otherwise


class UnsupportedVersion(ProjectionError):
    """Faust or aiokafka lacks a name that this module needs: the locked versions were changed."""


class Stalled(Stopped):
    """Behind, and nothing was applied for too long: the fetcher is dead, or PostgreSQL does not respond."""


def check_pinned() -> None:
    """Raises `UnsupportedVersion` where a private name is gone."""
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
        consumer._isolation_level = "read_committed"  # Faust's own setting is out of reach
        consumer._fetch_max_wait_ms = int(self.app.fetch_wait_seconds * 1000)
        consumer._client._metadata_max_age_ms = METADATA_SECONDS * 1000
        return consumer

    async def isolation(self) -> str:
        """Returns the isolation level of the running fetcher."""
        return cast(str, self._ensure_consumer()._fetcher._isolation_level)


class Consumer(driver.Consumer):  # type: ignore[misc]
    """Starts at the positions in PostgreSQL; `next`: the offset after the last fetched record."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.next: dict[TopicPartition, int] = {}

    def _new_consumer_thread(self) -> Thread:
        return Thread(self, loop=self.loop, beacon=self.beacon)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        topic_partitions = {(tp.topic, tp.partition): tp for tp in self.assignment()}
        self.next = {}  # drops batches that were fetched before the seek
        counts = await asyncio.to_thread(partition_counts, self.app.kafka)
        try:
            starts = await self.app.projector.assigned(topic_partitions, counts)
        except OtherCode as error:
            raise self.app.stop_for(error) from error
        await self._stand_within_the_log()
        offsets = {topic_partitions[topic_partition]: offset for topic_partition, offset in starts.items()}
        await self.seek_wait(offsets)
        self.next = starts
        return offsets

    async def _stand_within_the_log(self) -> None:
        positions = {
            name: {topic_partition: position.next_offset for topic_partition, position in offset.items()}
            for name, offset in self.app.projector.positions.items()
        }
        try:
            await asyncio.to_thread(require_positions_in_log, self.app.kafka, positions)
        except LogReplaced as error:
            raise self.app.stop_for(error) from error

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Any]:
        try:
            fetched = await super()._getmany(active_partitions, timeout)
        except OffsetOutOfRangeError as error:
            lost = {(tp.topic, tp.partition): offset for tp, offset in error.args[0].items()}
            raise self.app.stop_for(log_truncated(lost)) from error
        return {
            tp: [self._batch((tp.topic, tp.partition), records)]
            for tp, records in fetched.items()
            if records and (tp.topic, tp.partition) in self.next
        }

    def _batch(self, topic_partition: TopicPartition, records: list[Any]) -> Batch:
        batch = Batch(topic_partition, self.app.projector.seek, self.next[topic_partition], records)
        self.next[topic_partition] = batch.next_offset
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
            # Without a name the group waits for the session of a killed predecessor to end.
            consumer_group_instance_id=settings.projection_instance or None,
            broker_session_timeout=settings.session_seconds,
            broker_heartbeat_interval=settings.session_seconds / 4,
            broker_max_poll_records=settings.batch_events,
            datadir=Path(gettempdir(), "daybook-faust"),  # Faust insists on one; nothing is written there
        )
        self.projector, self.fetch_wait_seconds = projector, settings.fetch_wait_seconds
        self.kafka = settings.kafka
        self._stop_error: Stopped | None = None
        self.transport = Transport(self.conf.broker_consumer, self)
        self.on_partitions_revoked.connect(self._forget)

    async def _forget(self, *_: Any, **__: Any) -> None:
        await self.projector.revoked()

    async def started(self, seconds: float) -> None:
        """Wait for the first assignment, then raise `UnsupportedVersion` unless aborted records are kept out."""
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
        """Raises `Stopped` when nothing will be fetched any more."""
        if self._stop_error is not None:
            raise self._stop_error
        if self.crashed:
            raise Stalled(f"faust crashed: {self.crash_reason!r}")
        if self._fetcher is not None and self._fetcher.crashed:
            raise Stalled("the fetcher crashed")

    async def lags(self) -> dict[tuple[str, TopicPartition], int]:
        """Events behind the last stable offset, per read model and partition. Markers and aborted records at the end
        are not events: where everything fetched is applied, the consumer's own position counts."""
        tps = [tp for tp in self.consumer.assignment() if (tp.topic, tp.partition) in self.consumer.next]
        ends = await self.consumer.highwaters(*tps)
        behind = {}
        for tp in tps:
            topic_partition = (tp.topic, tp.partition)
            fetched_to = await self.consumer.position(tp)
            for name, positions in self.projector.positions.items():
                if topic_partition in positions:
                    offset = positions[topic_partition].next_offset
                    if offset == self.consumer.next.get(topic_partition):
                        offset = max(offset, fetched_to)
                    behind[name, topic_partition] = max(0, ends[tp] - offset)
        return behind

    async def commit_for_dashboards(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Commits the least position to Kafka, only for consumer-lag tools."""
        offsets = {
            TP(*topic_partition): min(
                offset[topic_partition].next_offset
                for offset in self.projector.positions.values()
                if topic_partition in offset
            )
            for topic_partition in topic_partitions
        }
        if offsets:
            await self.consumer._commit(offsets)
