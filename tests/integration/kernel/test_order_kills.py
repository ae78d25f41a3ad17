"""I1-I9 over kill -9 of the order worker at every step: an event and its commands are atomic."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from contracts.inventory.commands import ReceiveStock
from contracts.order import events as order
from contracts.order.commands import CancelOrder, PlaceOrder, ReturnedLine, ReturnLines, ShipOrder
from infra.lab.checker.evidence import Evidence, Recorded, read_evidence, read_sent
from infra.lab.checker.invariants import check, conversations_end
from tests.bench import bulk
from tests.integration.api.processes import eventually
from tests.integration.kernel.client import Client
from tests.integration.kernel.witness import Witness, aborted
from tests.integration.kernel.workers import WorkerProcess, killed_at_every_step

RATE = 60  # commands per second
RETRY_SECONDS = 1  # short: a retry would repair a torn transaction, and only the repair would show it
PLENTY, SCARCE = ("sku-0", "sku-1", "sku-2", "sku-3"), "sku-4"


class Load(threading.Thread):
    """Orders at a steady rate, and later commands on them; one command in twenty is a repeat."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client, self.stopped = client, threading.Event()
        self.random = random.Random(11)

    def run(self) -> None:
        number = 0
        while not self.stopped.wait(1 / RATE):
            number += 1
            earlier = f"order-{self.random.randint(max(1, number - 60), number)}"
            if number % 20 == 0 and self.client.sent:
                command_id = self.random.choice(list(self.client.sent)[-60:])
                key, again = self.client.sent[command_id]
                self.client.send(again, key, command_id)
                continue
            key, command = self.command(number, earlier)
            self.client.send(command, key, f"c{number}")

    def command(self, number: int, earlier: str) -> tuple[str, Any]:
        match self.random.randrange(9):
            case 0:
                return earlier, CancelOrder(earlier, "changed my mind", 1)
            case 1 | 2:
                return earlier, ShipOrder(earlier, 1)
            case 3 | 4:
                return earlier, ReturnLines(earlier, (ReturnedLine(PLENTY[0], 1),), "broken", 1)
            case _:
                skus = {PLENTY[0], *self.random.sample([*PLENTY[1:], SCARCE], self.random.randint(0, 2))}
                lines = tuple(order.Line(sku, 2, 1_000_000) for sku in sorted(skus))
                key = f"order-{number}"
                return key, PlaceOrder(key, **bulk.SHOP, occurred_at=1, lines=lines, charges=())


@pytest.mark.full
@pytest.mark.timeout(600)
def test_kills_at_every_step_tear_no_event_from_its_commands(
    bootstrap: str,
    start_worker: Callable[..., WorkerProcess],
    inventory_client: Client,
    order_client: Client,
    witness: Witness,
) -> None:
    start_worker("inventory")
    for sku in (*PLENTY, SCARCE):
        inventory_client.send(ReceiveStock(sku, 30 if sku == SCARCE else 10**6, "opening", 1), sku, sku)
    inventory_client.wait_for({*PLENTY, SCARCE})
    client = order_client
    load = Load(client)
    load.start()
    killed_at_every_step(start_worker, "order", redrive_seconds=RETRY_SECONDS)
    load.stopped.set()
    load.join()
    client.flush()
    start_worker("order", redrive_seconds=RETRY_SECONDS)
    client.wait_for(set(client.sent))
    events = at_rest(bootstrap)

    witness.has_seen({recorded.metadata.id for recorded in events})
    acknowledged = [*client.acknowledged(), *inventory_client.acknowledged()]
    sent = read_sent(bootstrap)
    assert len(sent) > len(events), "there is nothing to pair them with"
    assert check(Evidence(events, acknowledged, witness.seen, sent, at_rest=True)) == []
    for topic in ("order.events", "inventory.inbox"):
        assert aborted(bootstrap, topic), f"nothing was rolled back in {topic}"
    assert any(outcome.replayed for outcome in client.outcomes)
    kinds = Counter(type(recorded.event) for recorded in events)
    happened = {order.OrderConfirmed, order.OrderRejected, order.OrderCancelled, order.OrderShipped}
    assert happened | {order.OrderReturned} <= kinds.keys()


def at_rest(bootstrap: str) -> list[Recorded]:
    """The log after every saga has ended."""

    def ended() -> list[Recorded]:
        events = read_evidence(bootstrap)
        return events if not list(conversations_end(events, at_rest=True)) else []

    recorded: list[Recorded] = eventually(ended, "some saga does not end")
    return recorded
