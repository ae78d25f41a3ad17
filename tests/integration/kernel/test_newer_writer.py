"""An old standby stops at an event that it cannot read; newer code in its place continues from there."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from contracts.inventory.commands import AdjustStock, ReceiveStock
from contracts.inventory.events import StockAdjusted
from services.inventory.service import INVENTORY
from services.kernel.record.codec import Undecodable, decode, schema_id
from services.kernel.worker import fold
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import Slot, SlotConfig
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess


def standing_by(bootstrap: str, look: Callable[[Slot[Any, Any, Any]], None]) -> None:
    config = SlotConfig(bootstrap, 0, 1, 1, 10_000, Window(24.0, 1000), snapshot_seconds=3600)
    slot: Slot[Any, Any, Any] = Slot(INVENTORY, config, print)
    slot.stand_by()
    look(slot)
    slot.close()  # writes its snapshots
    del slot
    gc.collect()


def stopped(slot: Slot[Any, Any, Any]) -> set[str]:
    return {key for partition in slot.partitions.values() for key in partition.read.stopped}


def on_hand(slot: Slot[Any, Any, Any], key: str) -> tuple[int, int]:
    entities = [partition.get(key) for partition in slot.partitions.values()]
    (entity,) = [entity for entity in entities if entity.version]
    return entity.version, entity.state.on_hand


def test_an_old_standby_is_upgraded(
    bootstrap: str,
    start_worker: Callable[..., WorkerProcess],
    inventory_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = start_worker("inventory", snapshot_seconds=3600)
    client = inventory_client
    client.send(ReceiveStock("plain", 5, "", 1), "plain", "1")
    client.send(ReceiveStock("adjusted", 5, "", 1), "adjusted", "2")
    client.send(AdjustStock("adjusted", -2, "counted", 1), "adjusted", "3")
    client.send(ReceiveStock("adjusted", 4, "", 1), "adjusted", "4")
    client.flush()
    client.wait_for({"1", "2", "3", "4"})
    worker.end()
    newer = schema_id("inventory.events", StockAdjusted.TYPE).to_bytes(4, "big")

    def old_decode(value: bytes | None) -> Any:
        if value and value[1:5] == newer:
            raise Undecodable("a schema of newer code")
        return decode(value)

    def old(slot: Slot[Any, Any, Any]) -> None:
        assert stopped(slot) == {"adjusted"}
        assert on_hand(slot, "adjusted") == (1, 5)
        assert on_hand(slot, "plain") == (1, 5)

    def upgraded(slot: Slot[Any, Any, Any]) -> None:
        assert stopped(slot) == set()
        assert on_hand(slot, "adjusted") == (3, 7)
        assert on_hand(slot, "plain") == (1, 5)

    with monkeypatch.context() as patched:
        patched.setattr(fold, "decode", old_decode)
        standing_by(bootstrap, old)
        standing_by(bootstrap, old)  # from its snapshots
    standing_by(bootstrap, upgraded)
    standing_by(bootstrap, upgraded)
