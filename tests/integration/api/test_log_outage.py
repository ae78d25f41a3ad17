"""A command that the log does not take: the client hears so when its delivery is given up."""

import os
import signal
import time
from contextlib import closing
from typing import Any

import httpx

from infra.log.topics import create_topics
from tests.integration.api.processes import eventually, process
from tests.integration.api.responder import Responder
from tests.ports import free_ports
from tests.servers import NodeServer

ORDER: dict[str, Any] = {
    "country": "France",
    "currency": "EUR",
    "lines": [{"sku": "85123A", "quantity": 6, "unit_price": "2.55"}],
}
WAIT_SECONDS = 60


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
