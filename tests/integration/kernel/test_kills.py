"""I1-I7 over kill -9 of the inventory worker at every step of the transaction, judged from the raw log."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from contracts.inventory.commands import (
    AdjustStock,
    InventoryCommand,
    ReceiveStock,
    ReleaseStock,
    ReserveStock,
)
from infra.lab.checker.evidence import Evidence, read_evidence, read_sent
from infra.lab.checker.invariants import check
from tests.integration.kernel.client import Client
from tests.integration.kernel.witness import Witness, aborted
from tests.integration.kernel.workers import WorkerProcess, killed_at_every_step

pytestmark = pytest.mark.long

RATE = 200  # commands per second


class Load(threading.Thread):
    """Commands at a steady rate, one in twenty of them a repeat of an earlier one, until `stopped`."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client, self.stopped = client, threading.Event()
        self.random = random.Random(7)

    def run(self) -> None:
        number = 0
        while not self.stopped.wait(1 / RATE):
            number += 1
            if number % 20 == 0:
                command_id = f"c{self.random.randint(max(1, number - 60), number - 1)}"
                if command_id in self.client.sent:
                    key, earlier = self.client.sent[command_id]
                    self.client.send(earlier, key, command_id)
                continue
            command: InventoryCommand
            sku, order = f"SKU-{self.random.randrange(30)}", f"order-{number // 3}"
            match self.random.randrange(4):
                case 0:
                    command = ReceiveStock(sku, self.random.randint(1, 9), "delivery", 1)
                case 1:
                    command = AdjustStock(sku, -self.random.randint(1, 9), "broken", 1)
                case 2:
                    command = ReserveStock(sku, order, self.random.randint(1, 5), 1)
                case _:
                    command = ReleaseStock(sku, f"order-{self.random.randint(0, number // 3)}", 1)
            self.client.send(command, sku, f"c{number}")


@pytest.mark.timeout(600)
def test_kills_at_every_step_lose_and_double_nothing(
    bootstrap: str,
    start_worker: Callable[..., WorkerProcess],
    inventory_client: Client,
    witness: Witness,
) -> None:
    client = inventory_client
    load = Load(client)
    load.start()
    killed_at_every_step(start_worker, "inventory")
    load.stopped.set()
    load.join()
    client.flush()
    start_worker("inventory")
    client.wait_for(set(client.sent))
    events = read_evidence(bootstrap)
    witness.has_seen({recorded.metadata.id for recorded in events})
    assert aborted(bootstrap, "inventory.events"), "nothing was there that must not be seen"
    sent = read_sent(bootstrap)
    assert len(sent) > len(events), "there is nothing to pair them with"
    assert check(Evidence(events, client.acknowledged(), witness.seen, sent)) == []
    kinds = {outcome.kind for outcome in client.outcomes}
    assert kinds == {"accepted", "refused"}
    assert any(outcome.replayed for outcome in client.outcomes)
    assert len(events) > 1000
