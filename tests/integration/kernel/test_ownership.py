"""Who may write: zombies, slot layouts, late snapshots. Real processes, real signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from contracts.inventory.commands import ReceiveStock
from contracts.kernel.records import Snapshot
from infra.lab.checker import Evidence, check, read_evidence
from services.inventory.domain.state import Stock
from services.inventory.service import INVENTORY
from services.kernel.exit_codes import EXIT_LAYOUT, EXIT_LOST
from services.kernel.log.control import change_layout, read_control, snapshot_id
from services.kernel.log.reader import read_to_end
from services.kernel.log.transactions import Fenced, Transactions, produce
from services.kernel.record.codec import decode
from services.kernel.worker.snapshots import StateCodec
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import FIRST_BATCH, WorkerProcess


def test_a_zombie_writes_nothing_and_ends(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    client = inventory_client
    zombie = start_worker("inventory", doom=("send_offsets_to_transaction:after", FIRST_BATCH, "SIGSTOP"))
    zombie.wait_ready()
    first = {f"z{number}" for number in range(20)}
    for name in sorted(first):
        client.send(ReceiveStock(f"SKU-{name}", 1, "delivery", 1), f"SKU-{name}", name)
    client.flush()
    zombie.wait_stopped()
    heir = start_worker("inventory")
    heir.wait_ready()
    client.wait_for(first)
    os.kill(zombie.process.pid, signal.SIGCONT)
    code = zombie.process.wait(60)
    later = {f"y{number}" for number in range(20)}
    for name in sorted(later):
        client.send(ReceiveStock(f"SKU-{name}", 1, "delivery", 1), f"SKU-{name}", name)
    client.wait_for(later)
    assert code == EXIT_LOST, zombie.log.read_text()
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_a_zombies_late_snapshot_is_refused(bootstrap: str) -> None:
    zombie = Transactions(bootstrap, [snapshot_id("inventory", 0)], 10_000)
    zombie.fence()
    Transactions(bootstrap, [snapshot_id("inventory", 0)], 10_000).fence()
    value = b"an old snapshot"
    with pytest.raises(Fenced):
        zombie.run(lambda producer: produce(producer, "inventory.state", value, "SKU-z0"), [], None)
    found = [record.value() for record in read_to_end(bootstrap, "inventory.state", {0: 0, 1: 0})]
    assert value not in found


def test_snapshots_hold_the_states(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    client = inventory_client
    worker = start_worker("inventory", snapshot_seconds=0.2)
    client.send(ReceiveStock("SKU-snap", 7, "delivery", 1), "SKU-snap", "snap-1")
    client.wait_for({"snap-1"})
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    newest = {
        record.key(): record.value() for record in read_to_end(bootstrap, "inventory.state", {0: 0, 1: 0})
    }
    snapshot: Snapshot = decode(newest[b"SKU-snap"])
    stock: Stock = StateCodec(INVENTORY.states).decode(snapshot.state)
    assert (snapshot.version, stock.on_hand) == (1, 7)
    assert [answer.outcome.command_id for answer in snapshot.answers] == ["snap-1"]


def test_a_changed_layout_shuts_out_the_old_one(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    client = inventory_client
    old = start_worker("inventory")
    old.wait_ready()
    number = read_control(bootstrap).layout("inventory").number + 1
    change_layout(bootstrap, "inventory", 2)
    new = [start_worker("inventory", slot=slot, slots=2, layout=number) for slot in (0, 1)]
    for worker in new:
        worker.wait_ready()
    names = {f"l{index}" for index in range(40)}
    for name in sorted(names):
        client.send(ReceiveStock(f"SKU-{name}", 1, "delivery", 1), f"SKU-{name}", name)
    client.wait_for(names)
    back = start_worker("inventory")
    assert back.process.wait(60) == EXIT_LAYOUT, back.log.read_text()
    assert old.process.wait(60) == EXIT_LOST, old.log.read_text()
    change_layout(bootstrap, "inventory", 1)
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []
