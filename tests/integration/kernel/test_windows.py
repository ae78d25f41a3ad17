"""A batch window is longer while no client waits, until one does. See also the unit tests."""

from __future__ import annotations

import time
from collections.abc import Callable

from contracts.inventory.commands import ReceiveStock
from infra.base.waiting import wait_until
from services.kernel.log.reader import read_to_end
from services.kernel.record.envelope import ReplyAddress, read_headers
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess
from tests.scraped import metric

Start = Callable[..., WorkerProcess]
CONVERSATION = ReplyAddress("order.inbox", None, "step", "an-order")
FULL_BATCHES = 1500


def receive(client: Client, command_id: str, reply_to: ReplyAddress | None = None) -> None:
    client.send(ReceiveStock(command_id, 1, "delivery", 1), command_id, command_id, reply_to=reply_to)


def await_taken(worker: WorkerProcess, commands: int) -> None:
    wait_until(
        lambda: metric(worker.port, "daybook_batch_commands_sum"),
        f"{commands} commands are taken",
        60,
        enough=lambda count: count >= commands,
        every=0.02,
    )


def test_who_waits_does_not_wait_for_a_long_window(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    """After full batches a window lasts 0.1 s here, and one second while no client waits."""
    client = inventory_client
    for number in range(FULL_BATCHES):
        receive(client, f"full-{number}", CONVERSATION)
    client.flush()
    worker = start_worker("inventory", window_ms=100)
    worker.wait_ready()
    await_taken(worker, FULL_BATCHES)
    receive(client, "nobody-waits", CONVERSATION)
    client.flush()
    time.sleep(0.05)
    receive(client, "somebody-waits")
    client.flush()
    time.sleep(0.65)
    receive(client, "later", CONVERSATION)
    client.flush()
    await_taken(worker, FULL_BATCHES + 3)
    transaction: dict[str, str] = {}
    for record in read_to_end(bootstrap, "inventory.events", {0: 0, 1: 0}):
        metadata = read_headers(record.headers())
        transaction[metadata.subject] = metadata.transaction.partition("/")[0]
    assert transaction["nobody-waits"] == transaction["somebody-waits"] != transaction["later"]
