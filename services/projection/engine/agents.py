"""Faust agents: one per read model. Each drains what has been fetched and applies it in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from services.projection.engine.read_model import Batch, ReadModel
from services.projection.engine.source import Source


def add_agents(source: Source, batch_events: int) -> asyncio.Future[None]:
    """Add an agent per read model; the future fails with what stopped one of them."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # acks=False: the position is PostgreSQL's, Faust has nothing to keep account of
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
            # Faust would start us again behind the event: wait for the end of the process instead
            await asyncio.Event().wait()

    return project


async def _apply_all(
    source: Source, model: ReadModel[Any], stream: AsyncIterator[Batch], drained: Any, batch_events: int
) -> None:
    todo: list[Batch] = []
    async for batch in stream:
        todo.append(batch)
        if drained() or sum(len(one.records) for one in todo) >= batch_events:
            await source.projector.apply(model.name, todo)
            todo = []
