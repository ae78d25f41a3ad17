"""Health and metrics are on a listener of their own: who calls an API learns one word of them, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from infra.base.ports import HOST
from infra.log.topics import create_topics
from tests.integration.api.processes import eventually, process
from tests.ports import free_ports
from tests.servers import NodeServer

# Series of every part: the process, the service, and what its writes took.
SERIES = ("process_resident_memory_bytes", "daybook_gateway_pending", "daybook_request_seconds")
PATHS = ("/metrics", "/metrics/", "/health", "/health/ready/", "/health/mirror")


class Listeners(NamedTuple):
    clients: httpx.Client
    own: httpx.Client


@pytest.fixture(params=["order", "inventory"])
def listeners(broker: NodeServer, request: pytest.FixtureRequest) -> Iterator[Listeners]:
    create_topics(broker.bootstrap)
    port, health_port = free_ports(2)
    with (
        process(request.param, "api", broker.bootstrap, port, health_port=str(health_port)),
        httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=30) as clients,
        httpx.Client(base_url=f"http://{HOST}:{health_port}", trust_env=False, timeout=30) as own,
    ):
        yield Listeners(clients, own)


def test_clients_learn_one_word_while_the_broker_fails_and_returns(
    broker: NodeServer, listeners: Listeners
) -> None:
    assert agree(listeners, ready=True)
    broker.kill()
    eventually(lambda: agree(listeners, ready=False), "without its broker it is ready on no listener")
    assert listeners.own.get("/health/ready").json()["reason"]
    broker.start()
    eventually(lambda: agree(listeners, ready=True), "with its broker it is ready on both listeners")


def agree(listeners: Listeners, *, ready: bool) -> bool:
    """Whether both say so. Fails if clients learn more, or if the other listener serves anything else."""
    clients, own = listeners
    public, detailed = clients.get("/health/ready"), own.get("/health/ready")
    assert public.text == ("ready" if public.status_code == 200 else "unavailable")
    assert clients.get("/health/live").text == "live"
    for path in PATHS:
        refused = clients.get(path)
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found"), path
    metrics = own.get("/metrics")
    assert metrics.status_code == 200
    assert all(name in metrics.text for name in SERIES)
    for path in ("/", "/docs", "/openapi.json", "/orders", "/stock/MUG"):
        assert own.get(path).status_code == own.post(path, json={}).status_code == 404, path
    return public.status_code == detailed.status_code == (200 if ready else 503)
