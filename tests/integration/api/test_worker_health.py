"""A worker's health and metrics have the limits of every other server of the shop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from infra.base.ports import HOST
from infra.log.topics import create_topics
from tests.integration.api.processes import process
from tests.ports import free_ports
from tests.unit.api.servers import code, connected, exchange, status

MOST = 20


@pytest.fixture(scope="module")
def port(kafka: str) -> Iterator[int]:
    create_topics(kafka)
    (port,) = free_ports(1)
    settings = {"header_seconds": "0.5", "connections_per_address": str(MOST)}
    with process("inventory", "worker", kafka, port, **settings) as worker:
        yield port
        worker.terminate()
        assert worker.wait(30) == 0


def test_a_worker_serves_health_and_metrics(port: int) -> None:
    with httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False) as client:
        assert client.get("/health/live").json() == {"status": "live"}
        ready = client.get("/health/ready").json()
        assert (ready["status"], ready["epoch"]) == ("active", 1)
        metrics = client.get("/metrics").text
        assert 'daybook_restore_seconds{service="inventory"}' in metrics
        assert 'daybook_lag_known{service="inventory"} 1.0' in metrics
        assert client.get("/else").json()["code"] == "not_found"


def test_a_workers_server_has_limits(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(MOST):
            stack.enter_context(connected(port, "127.0.0.2"))
        refused = exchange(port, b"", "127.0.0.2")
        assert (status(refused), code(refused)) == (429, "too_many_connections")
    assert code(exchange(port, b"GET /health/live HTTP/1.1\r\nX-Slow:")) == "request_timeout"
    assert code(exchange(port, b"nonsense\r\n\r\n")) == "malformed_request"
    assert code(exchange(port, b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 40_000)) == "headers_too_large"
    with httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False) as client:
        assert client.get("/health/live", headers={"Host": "evil.example"}).status_code == 421
        assert client.get("/health/live?colour=red").json()["code"] == "unknown_parameter"
