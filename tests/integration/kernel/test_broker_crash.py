"""The broker is killed or frozen under a working slot: acknowledged commands stay, and the slot recovers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.inventory.commands import ReceiveStock
from infra.base.background import Background
from infra.base.waiting import wait_until
from infra.lab.checker.evidence import Evidence, read_evidence, read_sent
from infra.lab.checker.invariants import check
from infra.log.topics import create_topics, ensure_site
from infra.stack.embedded.kafka import lone_broker
from services.kernel.exit_codes import EXIT_LOST
from tests.integration.kernel.client import Client
from tests.integration.kernel.witness import Witness
from tests.integration.kernel.workers import WorkerProcess
from tests.ports import free_ports
from tests.servers import NodeServer

pytestmark = pytest.mark.long

CRASHES = 3
# From a broker's return to the first acknowledgement; on an idle machine it takes one or two. Without the
# monitor a call never returns: any bound shows it.
BACK_SECONDS = 30.0
FROZEN_SECONDS = 20.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NodeServer]:
    """A broker of the test's own, with all topics."""
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(tmp_path / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    try:
        create_topics(broker.bootstrap)
        ensure_site(broker.bootstrap)
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def bootstrap(broker: NodeServer) -> str:
    """The broker that the witness reads."""
    return broker.bootstrap


class Kept(Background):
    """A worker that is restarted whenever it ends; `codes` are its exit codes."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__("keeper")
        self._bootstrap, self._folder = bootstrap, folder
        self.worker = self._start()
        self.worker.wait_ready()
        self.codes: list[int] = []

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.worker.end()

    def _start(self) -> WorkerProcess:
        return WorkerProcess(self._bootstrap, "inventory", self._folder)

    def _work(self) -> None:
        while not self._stopping.wait(0.05):
            if (code := self.worker.process.poll()) is not None:
                self.codes.append(code)
                self.worker = self._start()


@pytest.mark.timeout(280)
def test_broker_crashes_lose_nothing_acknowledged_and_hold_nobody_up(
    broker: NodeServer, tmp_path: Path, witness: Witness
) -> None:
    workers: list[WorkerProcess] = []
    try:
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
        _judge(broker, client, witness)
    finally:
        for worker in workers:
            worker.end()


@pytest.mark.full
@pytest.mark.timeout(280)
def test_a_slot_is_back_soon_after_its_broker(broker: NodeServer, tmp_path: Path, witness: Witness) -> None:
    client = Client(broker.bootstrap, "inventory")
    with Kept(broker.bootstrap, tmp_path) as kept:
        with Steady(client):
            for _ in range(CRASHES):
                _await_outcomes(client, 50)
                broker.kill()
                broker.start()
                _await_outcomes(client, 1)
        # a worker that lost the broker must settle: it ended, exactly once
        assert kept.codes == [EXIT_LOST] * CRASHES
        _judge(broker, client, witness)


@pytest.mark.timeout(280)
def test_a_worker_ends_while_its_broker_is_frozen(
    broker: NodeServer, tmp_path: Path, witness: Witness
) -> None:
    """A call without a response cannot be cancelled: it ends with its process."""
    client = Client(broker.bootstrap, "inventory")
    worker = WorkerProcess(broker.bootstrap, "inventory", tmp_path)
    try:
        worker.wait_ready()
        with Steady(client):
            _await_outcomes(client, 50)
            os.killpg(broker.child.pid, signal.SIGSTOP)
            try:
                assert worker.process.wait(FROZEN_SECONDS) == EXIT_LOST
            finally:
                os.killpg(broker.child.pid, signal.SIGCONT)
        assert "the broker has not responded" in worker.log.read_text()
        with Kept(broker.bootstrap, tmp_path) as kept:
            _judge(broker, client, witness)
        assert kept.codes == []
    finally:
        worker.end()


class Steady(Background):
    """Sends 50 commands a second; ignores their outcomes."""

    def __init__(self, client: Client) -> None:
        super().__init__("steady")
        self._client = client

    def _work(self) -> None:
        number = 0
        while not self._stopping.wait(0.02):
            number += 1
            sku = f"SKU-{number % 7}"
            self._client.send(ReceiveStock(sku, 1, "delivery", 1), sku, f"steady-{number}")


def _judge(broker: NodeServer, client: Client, witness: Witness) -> None:
    """Every command has an outcome, also one sent now, and the log agrees with the outcomes.

    No other client may write meanwhile: an event committed after the log was read would look missing.
    """
    _send(client, "after", 20)
    client.wait_for({f"after-{number}" for number in range(20)})
    _until(lambda: client.sent.keys() <= client.latest_outcomes().keys(), client)
    client.close()
    events, sent = read_evidence(broker.bootstrap), read_sent(broker.bootstrap)
    assert len(sent) > len(events)
    witness.has_seen({recorded.metadata.id for recorded in events})
    assert check(Evidence(events, client.acknowledged(), witness.seen, sent)) == []


def _await_outcomes(client: Client, count: int) -> None:
    """Waits for `count` more outcomes."""
    before = len(client.outcomes)
    wait_until(
        lambda: len(client.outcomes) - before,
        f"{count} outcomes",
        BACK_SECONDS,
        enough=lambda more: more >= count,
        every=0.02,
    )


def _send(client: Client, name: str, count: int) -> None:
    for number in range(count):
        sku = f"SKU-{number % 7}"
        client.send(ReceiveStock(sku, 1, "delivery", 1), sku, f"{name}-{number}")


def _until(holds: Callable[[], bool], client: Client) -> None:
    """Repeats commands without an outcome under their own ids, as clients do, until `holds`."""

    def missing() -> list[str]:
        return sorted(client.sent.keys() - client.latest_outcomes().keys())

    def repeated() -> bool:
        if holds():
            return True
        for command_id in missing():
            key, command = client.sent[command_id]
            client.send(command, key, command_id)
        return False

    wait_until(repeated, lambda: f"outcomes of {missing()[:5]}", 60, every=1)
