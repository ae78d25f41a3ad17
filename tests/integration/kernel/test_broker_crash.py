"""The broker is killed under a working slot: what was acknowledged stays, the slot comes back by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.inventory.commands import ReceiveStock
from infra.checker import Evidence, check, read_evidence
from infra.embedded.broker import EmbeddedBroker
from infra.embedded.ports import free_ports
from infra.topics import create_topics, ensure_site
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess

CRASHES = 3


@pytest.mark.timeout(280)
def test_broker_crashes_lose_nothing_acknowledged_and_hold_nobody_up(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    broker = EmbeddedBroker(tmp_path / "broker", port, controller_port, heap_megabytes=256)
    broker.start()
    workers: list[WorkerProcess] = []
    try:
        create_topics(broker.bootstrap)
        ensure_site(broker.bootstrap)
        client = Client(broker.bootstrap, "inventory")
        for crash in range(CRASHES):
            workers.append(WorkerProcess(broker.bootstrap, "inventory", tmp_path))
            workers[-1].wait_ready()
            _send(client, f"before-{crash}", 100)
            client.wait_for({f"before-{crash}-{number}" for number in range(50)})
            broker.kill()
            workers[-1].end()
            broker.start()
        workers.append(WorkerProcess(broker.bootstrap, "inventory", tmp_path))
        workers[-1].wait_ready()
        _send(client, "after", 20)
        client.wait_for({f"after-{number}" for number in range(20)})
        _until(lambda: client.sent.keys() <= client.answered().keys(), client)
        client.close()
        evidence = Evidence(read_evidence(broker.bootstrap, ["inventory.events"]), client.acknowledged())
        assert check(evidence) == []
    finally:
        for worker in workers:
            worker.end()
        broker.kill()


def _send(client: Client, name: str, count: int) -> None:
    for number in range(count):
        sku = f"SKU-{number % 7}"
        client.send(ReceiveStock(sku, 1, "delivery", 1), sku, f"{name}-{number}")


def _until(holds: Callable[[], bool], client: Client) -> None:
    """Repeat what is unanswered under its own id, as clients do, until `holds`."""
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, sorted(client.sent.keys() - client.answered().keys())[:5]
        for command_id in sorted(client.sent.keys() - client.answered().keys()):
            key, command = client.sent[command_id]
            client.send(command, key, command_id)
        time.sleep(1)
