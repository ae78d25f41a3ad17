"""What a restore lets rest on its way is what it folded, and goes into the snapshots as it stands."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from contracts.kernel.records import Outcome
from services.kernel.log.rule import Journal
from services.kernel.worker import fold as folding
from services.kernel.worker.entity import Entity
from services.kernel.worker.fold import Fold
from services.kernel.worker.restoring import restore
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import Slot, SlotConfig
from services.kernel.worker.snapshots import StateCodec
from services.order.service import ORDER
from tests.bench import bulk

ORDERS = 60
WINDOW = Window(24.0, 1_000_000)

Held = dict[str, tuple[Entity[Any], dict[str, Outcome]]]


def restored(bootstrap: str) -> Fold[Any]:
    return restore(bootstrap, ORDER, StateCodec(ORDER.states), WINDOW, [0, 1], 2, Journal())


def resting(fold: Fold[Any]) -> int:
    return sum(part.evicted(key) is not None for part in fold.partitions.values() for key in part)


def held(fold: Fold[Any]) -> Held:
    """Every entity with its remembered answers; looking at them wakes them up."""
    found: Held = {}
    for part in fold.partitions.values():
        for key in part:
            entity = part.get(key)
            answers = {answer.outcome.command_id: answer.outcome for answer in part.outcomes.of(key)}
            found[key] = entity, answers
    return found


def test_what_rests_is_what_was_folded_and_is_written_as_it_stands(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk.put_events(bootstrap, bulk.interleaved(bulk.lives(ORDERS), width=7), 50)
    folded = restored(bootstrap)
    assert resting(folded) == 0
    expected = held(folded)
    assert len(expected) == ORDERS

    monkeypatch.setattr(folding, "IN_HAND", 10)
    config = SlotConfig(bootstrap, 0, 1, 1, 10_000, WINDOW, snapshot_seconds=3600)
    slot: Slot[Any, Any, Any] = Slot(ORDER, config, print)
    consumer = slot.open()
    assert ORDERS // 2 < resting(slot.fold) < ORDERS
    assert slot.snapshot() == ORDERS
    assert resting(slot.fold) > ORDERS // 2, "to write them wakes none of them up"
    assert held(slot.fold) == expected
    slot.close()
    consumer.close()
    del slot, consumer
    gc.collect()  # its producers would go on looking for the broker after the last test

    from_snapshots = restored(bootstrap)
    assert resting(from_snapshots) == ORDERS
    assert held(from_snapshots) == expected
