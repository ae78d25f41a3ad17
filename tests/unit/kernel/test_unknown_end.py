"""A transaction whose end is unknown may be in the log: no snapshot claims to contain it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.topics import SERVICE_OF
from services.inventory.service import INVENTORY
from services.kernel.log.transactions import OwnershipLost
from services.kernel.worker.command_loop import CommandLoop
from services.kernel.worker.entities import Entity, Partition, Staged
from services.kernel.worker.execution import Executor
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import Slot
from services.kernel.worker.snapshots import SnapshotReader, SnapshotWriter, StateCodec
from services.kernel.worker.worker_metrics import WorkerMetrics

CODEC: StateCodec[Any] = StateCodec(INVENTORY.states)


class Snapshots:
    """The transactions of the snapshots; how many there were."""

    count = 0

    def run(self, *_: Any) -> None:
        self.count += 1


def lost(*_: Any) -> None:
    raise OwnershipLost("unknown end")


def test_no_snapshot_is_written_behind_a_transaction_whose_end_is_unknown() -> None:
    """Its recorded outcomes lie before the end that a watermark would name: nobody would read them again."""
    decider, transactions, lock = INVENTORY.decider, Snapshots(), threading.Lock()
    partition = Partition(decider.initial, decider.forget, SnapshotReader(CODEC).load, Window(24.0, 1000))
    partitions = {0: partition}
    about: Any = transactions, lambda _: {0: 7}, lock, print, 0
    writer = SnapshotWriter("inventory", partitions, CODEC, INVENTORY.process.is_open, *about)
    slot: Any = Slot.__new__(Slot)  # without its producers
    slot.aggregate, slot.lock, slot._snapshots = INVENTORY, lock, writer
    slot._fold = SimpleNamespace(partitions=partitions, open_entities=())
    slot.transactions = SimpleNamespace(run=lost)
    executor = Executor(INVENTORY, partitions, dict.fromkeys(SERVICE_OF, 1), 1)
    inputs: Any = SimpleNamespace(group=None)
    loop = CommandLoop(slot, inputs, executor, WorkerMetrics("inventory"), 0.005, 30)

    partition.put("a", Entity(decider.initial, 1, 1))
    assert (writer.write(), transactions.count) == (1, 2), "a snapshot, and the watermark"
    partition.put("a", Entity(decider.initial, 2, 1))
    with pytest.raises(OwnershipLost):
        loop._commit([], Staged(), 1)
    assert (writer.write(), transactions.count) == (0, 2)
