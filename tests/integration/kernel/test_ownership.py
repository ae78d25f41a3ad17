"""Who may write: zombies, slot layouts, late snapshots. Real processes, real signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from contracts.inventory.commands import ReceiveStock
from contracts.kernel.records import Snapshot
from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from infra.log.control import change_layout
from services.inventory.domain.state import Stock
from services.inventory.service import INVENTORY
from services.kernel.exit_codes import EXIT_LAYOUT, EXIT_LOST
from services.kernel.log import transactions
from services.kernel.log.control import snapshot_id
from services.kernel.log.reader import read_to_end
from services.kernel.log.transactions import Fenced, OwnershipLost, Transactions, produce
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
    values = [record.value() for record in read_to_end(bootstrap, "inventory.state", {0: 0, 1: 0})]
    assert value not in values


def test_a_zombie_that_settles_has_lost_its_ownership(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fenced while it writes; the failure reaches it when it asks for the deliveries."""
    zombie = Transactions(bootstrap, [snapshot_id("inventory", 0)], 10_000)
    zombie.fence()

    def produce_late(*args: Any, **more: Any) -> None:
        Transactions(bootstrap, [snapshot_id("inventory", 0)], 10_000).fence()
        produce(*args, **more)

    monkeypatch.setattr(transactions, "produce", produce_late)
    with pytest.raises(OwnershipLost, match=r"fenced|not settled"):
        zombie.settle([("inventory.state", 0), ("inventory.state", 1)], [], None)


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
    assert [recorded.outcome.command_id for recorded in snapshot.answers] == ["snap-1"]


def test_workers_follow_the_layout(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    """An idle worker ends when the layout changes; one whose slot does not exist yet waits for it."""
    client = inventory_client
    waiting, old = start_worker("inventory", slot=1), start_worker("inventory")
    old.wait_ready()
    change_layout(bootstrap, "inventory", 2)
    assert old.process.wait(60) in (EXIT_LAYOUT, EXIT_LOST), old.log.read_text()
    waiting.wait_ready()
    start_worker("inventory").wait_ready()
    send(client, names := {f"l{index}" for index in range(40)})
    client.wait_for(names)
    change_layout(bootstrap, "inventory", 1)
    assert waiting.process.wait(60) in (EXIT_LAYOUT, EXIT_LOST), waiting.log.read_text()
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_a_worker_of_the_old_layout_that_wakes_up_writes_nothing(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    """It has read commands and began a transaction, of which the broker does not know yet: only the fence stops it."""
    client = inventory_client
    change_layout(bootstrap, "inventory", 2)
    for slot in (0, 1):
        start_worker("inventory", slot=slot).wait_ready()
    frozen = start_worker("inventory", slot=1, doom=("begin_transaction:after", FIRST_BATCH, "SIGSTOP"))
    frozen.wait_ready()
    send(client, names := {f"w{number}" for number in range(20)})
    frozen.wait_stopped()
    change_layout(bootstrap, "inventory", 1)
    start_worker("inventory").wait_ready()
    client.wait_for(names)
    os.kill(frozen.process.pid, signal.SIGCONT)
    assert frozen.process.wait(60) in (EXIT_LAYOUT, EXIT_LOST), frozen.log.read_text()
    send(client, later := {f"v{number}" for number in range(20)})
    client.wait_for(later)
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def send(client: Client, names: set[str]) -> None:
    """A delivery for each name, to a SKU of its own."""
    for name in sorted(names):
        client.send(ReceiveStock(f"SKU-{name}", 1, "delivery", 1), f"SKU-{name}", name)
    client.flush()
