"""Faust agents: one per read model. Each takes all fetched batches and applies them in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from services.projection.engine.read_model import Batch, ReadModel
from services.projection.engine.source import Source


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
