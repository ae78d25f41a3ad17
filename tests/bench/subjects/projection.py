"""The shop's projection over some of its read models: `python -m … SOURCE NAMES`, until it is killed.

SOURCE is `faust` (ours: fetched runs), `single` (Faust as it is sold: one event at a time through its stream)
or `plain` (aiokafka without Faust). All feed the same projector and the same tables.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import aiokafka
import uvloop
from faust.types import TP

from services.kernel.collector import keep_what_is_here
from services.kernel.log.clients import Connection
from services.projection.engine.database import migrate, pool
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Batch
from services.projection.engine.settings import ProjectionSettings
from services.projection.engine.source import Consumer, Source, Transport, add_agents
from services.projection.read_models import READ_MODELS

START_SECONDS = 60.0


class SingleConsumer(Consumer):
    """Faust's own way: each event is a message of its own in the stream. Still read_committed, still ours
    to seek: wrong rows in the tables would be no comparison."""

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Any]:
        fetched = await super(Consumer, self)._getmany(active_partitions, timeout)
        return {
            tp: [self._batch(tp, [record]) for record in records]
            for tp, records in fetched.items()
            if tp in self.next
        }


class SingleTransport(Transport):
    Consumer = SingleConsumer


async def faust(settings: ProjectionSettings, projector: Projector, single: bool) -> None:
    source = Source(settings, projector)
    if single:
        source.transport = SingleTransport(source.conf.broker_consumer, source)
    failed = add_agents(source, settings.batch_events)
    await source.start()
    await source.started(START_SECONDS)
    keep_what_is_here()
    while not failed.done():
        source.check()  # a fetcher that crashed would look like a slow one
        await asyncio.wait({failed}, timeout=1)
    failed.result()


async def plain(settings: ProjectionSettings, projector: Projector) -> None:
    """The smallest possible projection: fetch and apply in a loop, with fixed partitions and no group."""
    consumer = aiokafka.AIOKafkaConsumer(
        **Connection(settings.kafka).aiokafka(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=int(settings.fetch_wait_seconds * 1000),
    )
    await consumer.start()
    topics = sorted({topic for model in projector.models.values() for topic in model.topics})
    partitions = [aiokafka.TopicPartition(topic, number) for topic in topics for number in (0, 1)]
    consumer.assign(partitions)
    assigned = {(partition.topic, partition.partition) for partition in partitions}
    starts = await projector.assigned(assigned, dict.fromkeys(topics, 2))
    for partition in partitions:
        consumer.seek(partition, starts[partition.topic, partition.partition])
    keep_what_is_here()
    while True:
        fetched = await consumer.getmany(timeout_ms=200, max_records=settings.batch_events)
        batches: dict[str, list[Batch]] = {}
        for partition, records in fetched.items():
            key = (partition.topic, partition.partition)
            batch = Batch(key, projector.seek, starts[key], records)
            starts[key] = batch.next_offset
            batches.setdefault(partition.topic, []).append(batch)
        await asyncio.gather(
            *(
                projector.apply(name, [batch for topic in model.topics for batch in batches.get(topic, ())])
                for name, model in projector.models.items()
                if any(topic in batches for topic in model.topics)
            )
        )


async def main(source: str, names: str) -> None:
    settings = ProjectionSettings()
    models = [model for model in READ_MODELS if model.name in names.split(",")]
    async with pool(settings.database_url, len(models) + 2) as connections:
        async with connections.acquire() as connection:
            await migrate(connection, READ_MODELS)
        projector = Projector(connections, models)
        if source == "plain":
            await plain(settings, projector)
        else:
            await faust(settings, projector, source == "single")


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:3]))
