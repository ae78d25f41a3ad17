"""Entities that a restore evicts equal those it folded, and their snapshots are written unchanged."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from contracts.kernel.records import Outcome
from services.kernel.log.rule import Journal
from services.kernel.worker import fold as folding
from services.kernel.worker.entities import Entity
from services.kernel.worker.fold import Fold
from services.kernel.worker.restore import restore
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import Slot, SlotConfig
from services.kernel.worker.snapshots import StateCodec
from services.order.service import ORDER
from tests.bench import bulk

ORDERS = 60
WINDOW = Window(24.0, 1_000_000)

Contents = dict[str, tuple[Entity[Any], dict[str, Outcome]]]


def restored(bootstrap: str) -> Fold[Any]:
    return restore(bootstrap, ORDER, StateCodec(ORDER.states), WINDOW, [0, 1], 2, Journal())


def evicted_count(fold: Fold[Any]) -> int:
    return sum(part.evicted(key) is not None for part in fold.partitions.values() for key in part._entities)


def contents(fold: Fold[Any]) -> Contents:
    """Every entity with its recorded outcomes. Reading an evicted entity loads it."""
    entities: Contents = {}
    for part in fold.partitions.values():
        for key in list(part._entities):
            entity = part.get(key)
            outcomes = {recorded.outcome.command_id: recorded.outcome for recorded in part.outcomes.of(key)}
            entities[key] = entity, outcomes
    return entities


def test_evicted_entities_are_what_was_folded_and_are_written_unchanged(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk.put_events(bootstrap, bulk.interleaved(bulk.lives(ORDERS), width=7), 50)
    folded = restored(bootstrap)
    assert evicted_count(folded) == 0
    expected = contents(folded)
    assert len(expected) == ORDERS

    monkeypatch.setattr(folding, "IN_HAND", 10)
    config = SlotConfig(bootstrap, 0, 1, 1, 10_000, WINDOW, snapshot_seconds=3600)
    slot: Slot[Any, Any, Any] = Slot(ORDER, config, print)
    consumer = slot.open()
    assert ORDERS // 2 < evicted_count(slot.fold) < ORDERS
    assert slot.snapshot() == ORDERS
    assert evicted_count(slot.fold) > ORDERS // 2, "writing snapshots loads no entity"
    assert contents(slot.fold) == expected
    slot.close()
    consumer.close()
    del slot, consumer
    gc.collect()  # its producers would keep connecting to the broker after the last test

    from_snapshots = restored(bootstrap)
    assert evicted_count(from_snapshots) == ORDERS
    assert contents(from_snapshots) == expected
