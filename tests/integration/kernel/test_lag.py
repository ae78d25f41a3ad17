"""A worker's lag is measured at each scrape: correct while its loop hangs, absent while it is unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry, generate_latest

from contracts.inventory.commands import ReceiveStock
from infra.base.waiting import wait_until
from infra.log.topics import create_topics
from infra.stack.embedded.kafka import lone_broker
from services.kernel.log.transactions import Aborted, Transactions, produce
from services.kernel.record.codec import encode
from services.kernel.worker.worker_metrics import Followed, WorkerLag
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess, lags
from tests.ports import free_ports
from tests.servers import NodeServer

pytestmark = pytest.mark.long

TOPIC = "inventory.commands"
KNOWN = 'daybook_lag_known{service="inventory"}'
LAG = 'daybook_lag_events{service="inventory"}'
PATIENCE = 60.0


def until(read: Callable[[], dict[str, float]], expected: dict[str, float]) -> None:
    wait_until(read, f"the lag is {expected}", PATIENCE, enough=lambda current: current == expected)


def send(bootstrap: str, count: int, *, abort: bool = False) -> None:
    """Sends commands like another service: in a transaction, with a marker after them."""
    writer = Transactions(bootstrap, ["another-service"], 10_000)
    writer.fence()

    def stage(producer: Producer) -> None:
        for number in range(count):
            command = ReceiveStock("22423", 1, f"delivery {number}", 1)
            produce(producer, TOPIC, encode(TOPIC, command), "22423")
        if abort:
            producer.flush(10)
            raise Aborted("as wanted")

    try:
        writer.run(stage, [], None)
    except Aborted:
        writer._abort(writer._producers[0])


def test_a_worker_at_rest_is_not_behind_whatever_closes_its_commands(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    send(bootstrap, 30)
    worker = start_worker("inventory")
    worker.wait_ready()
    until(worker.lags, {KNOWN: 1.0, LAG: 0.0})
    send(bootstrap, 5, abort=True)
    until(worker.lags, {KNOWN: 1.0, LAG: 0.0})
    worker.end()
    inventory_client.send(ReceiveStock("22423", 1, "delivery", 1), "22423", "command")
    inventory_client.flush()
    again = start_worker("inventory")
    again.wait_ready()
    until(again.lags, {KNOWN: 1.0, LAG: 0.0})


def test_commands_wait_while_the_loop_does_nothing_and_nobody_knows_without_a_broker(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(tmp_path / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    try:
        create_topics(broker.bootstrap)
        executed = {0: 0, 1: 0}
        followed: list[Followed] = []
        registry = CollectorRegistry()
        registry.register(
            WorkerLag("inventory", broker.bootstrap, lambda: followed[-1] if followed else None)
        )

        def read_lags() -> dict[str, float]:
            return lags(generate_latest(registry).decode())

        assert read_lags() == {KNOWN: 0.0}, "nothing is restored yet"
        followed.append(Followed("daybook_lag_events", "", lambda: {TOPIC: executed}))
        until(read_lags, {KNOWN: 1.0, LAG: 0.0})
        send(broker.bootstrap, 7)
        until(read_lags, {KNOWN: 1.0, LAG: 7.0})
        frozen = psutil.Process(broker.child.pid)
        frozen.suspend()
        until(read_lags, {KNOWN: 0.0})
        frozen.resume()
        until(read_lags, {KNOWN: 1.0, LAG: 7.0})
        broker.stop()
        until(read_lags, {KNOWN: 0.0})
        broker.start()
        until(read_lags, {KNOWN: 1.0, LAG: 7.0})
    finally:
        broker.kill()
