"""Partitions that are revoked while the positions are read: a rebalance inside a rebalance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.kernel.log.rule import Journal
from services.projection.engine import projector as engine
from services.projection.engine.position import Position
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import TopicPartition
from services.projection.read_models import READ_MODELS

EVENTS: TopicPartition = ("order.events", 0)
SECOND: TopicPartition = ("order.events", 1)
MODELS = [model for model in READ_MODELS if "order.events" in model.topics]


class Connections:
    """A pool whose connections nobody asks anything."""

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        yield None


@pytest.fixture
def projector(monkeypatch: pytest.MonkeyPatch) -> Projector:
    async def honoured(_connection: object, _model: object, latest: Journal) -> Journal:
        return latest

    monkeypatch.setattr(engine, "honoured", honoured)
    return Projector(Connections(), MODELS)  # type: ignore[arg-type]


async def test_revoked_meanwhile_it_keeps_nothing_and_fails_at_nothing(
    projector: Projector, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin(_connection: object, _model: Any, tps: Iterable[TopicPartition]) -> Any:
        await projector.revoked()
        return {tp: Position(7, 0, 0) for tp in tps}

    monkeypatch.setattr(engine, "begin", begin)
    assert await projector.assigned([EVENTS], {"order.events": 2}) == {EVENTS: 7}
    assert not any(projector.positions.values())


async def test_an_older_assignment_that_ends_later_replaces_nothing(
    projector: Projector, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = iter([3] + [9] * 2 * len(MODELS))

    async def begin(_connection: object, _model: Any, tps: Iterable[TopicPartition]) -> Any:
        offset = next(offsets)
        if offset == 3:  # the first assignment is still reading when the second begins and ends
            assert await projector.assigned([SECOND], {"order.events": 2}) == {SECOND: 9}
        return {tp: Position(offset, 0, 0) for tp in tps}

    monkeypatch.setattr(engine, "begin", begin)
    await projector.assigned([EVENTS], {"order.events": 2})
    assert {tp for stored in projector.positions.values() for tp in stored} == {SECOND}
