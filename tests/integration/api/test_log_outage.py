"""A broker that is silent for a while: what clients of the API are told, and that Kafka's clients find it again."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from infra.base.waiting import wait_until
from infra.log.topics import create_topics
from services.kernel.log import clients
from services.kernel.log.control import CONTROL, snapshot_id
from services.kernel.log.reader import high_watermarks
from services.kernel.log.transactions import Transactions
from tests.integration.api.processes import eventually, process
from tests.integration.api.responder import Responder
from tests.ports import free_ports
from tests.servers import NodeServer

pytestmark = pytest.mark.long

ORDER: dict[str, Any] = {
    "country": "France",
    "currency": "EUR",
    "lines": [{"sku": "85123A", "quantity": 6, "unit_price": "2.55"}],
}
WAIT_SECONDS = 60
# More than the session of a broker: the controller fences it, and for a moment it names no broker to its clients.
FROZEN_SECONDS = 5
LOOK_SECONDS = 0.02
STARTING, FREEZES = 20, 2


def test_an_unavailable_log_is_a_repeatable_503(broker: NodeServer) -> None:
    create_topics(broker.bootstrap)
    (port,) = free_ports(1)
    settings = {"delivery_seconds": "1", "wait_seconds": str(WAIT_SECONDS), "replica": "3"}
    with (
        process("order", "api", broker.bootstrap, port, **settings),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_SECONDS) as api,
    ):
        os.kill(broker.child.pid, signal.SIGSTOP)
        began = time.monotonic()
        response = api.post("/orders", json=ORDER)
        assert (response.status_code, response.json()["code"]) == (503, "log_unavailable")
        assert time.monotonic() - began < WAIT_SECONDS / 2
        os.kill(broker.child.pid, signal.SIGCONT)
        key = {"Idempotency-Key": response.headers["idempotency-key"]}
        with closing(Responder(broker.bootstrap)):
            eventually(lambda: api.post("/orders", json=ORDER, headers=key).status_code == 201, "not taken")


@pytest.mark.parametrize("kind", [clients.admin, clients.writer])
def test_a_broker_that_was_frozen_is_found_again(
    broker: NodeServer, kind: Callable[[str], AdminClient | Producer]
) -> None:
    create_topics(broker.bootstrap)
    client = kind(broker.bootstrap)

    def responds() -> bool:
        try:
            return CONTROL in client.list_topics(CONTROL, 1.0).topics
        except KafkaException:
            return False

    def look() -> None:
        until = time.monotonic() + FROZEN_SECONDS

        def passed() -> bool:
            responds()
            return time.monotonic() > until

        wait_until(passed, "the time has passed", WAIT_SECONDS, every=LOOK_SECONDS)

    assert responds()
    os.kill(broker.child.pid, signal.SIGSTOP)
    look()
    os.kill(broker.child.pid, signal.SIGCONT)
    look()  # what waited is answered as the broker wakes, before its controller knows it again
    eventually(responds, "the client has no broker")


def test_workers_that_start_as_the_broker_wakes_own_their_slots(broker: NodeServer) -> None:
    """A client whose first contact falls into that moment never finds the broker; the worker takes another one."""
    create_topics(broker.bootstrap)

    def own(slot: int) -> None:
        time.sleep(FROZEN_SECONDS - 1.5 + slot * 0.15)
        assert high_watermarks(broker.bootstrap, CONTROL, [0]), "no leader is known in that moment"
        Transactions(broker.bootstrap, [snapshot_id("order", slot)], 10_000).fence(WAIT_SECONDS)

    with ThreadPoolExecutor(STARTING) as threads:
        for _ in range(FREEZES):
            os.kill(broker.child.pid, signal.SIGSTOP)
            owned = [threads.submit(own, slot) for slot in range(STARTING)]
            time.sleep(FROZEN_SECONDS)
            os.kill(broker.child.pid, signal.SIGCONT)
            for slot in owned:
                slot.result(2 * WAIT_SECONDS)
