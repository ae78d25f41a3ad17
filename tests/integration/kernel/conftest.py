"""The kernel's tests have a broker of their own: they kill and freeze its clients and read its whole log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.embedded.broker import EmbeddedBroker
from infra.embedded.ports import free_ports
from infra.topics import create_topics, ensure_site
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with all topics of the catalogue, for one module."""
    port, controller_port = free_ports(2)
    folder: Path = tmp_path_factory.mktemp("kernel")
    broker = EmbeddedBroker(folder / "broker", port, controller_port, heap_megabytes=256)
    broker.start()
    try:
        create_topics(broker.bootstrap)
        ensure_site(broker.bootstrap)
        yield broker.bootstrap
    finally:
        broker.kill()


@pytest.fixture
def start_worker(bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Start workers (see WorkerProcess); all are ended with the test."""
    started: list[WorkerProcess] = []

    def start(service: str, **how: Any) -> WorkerProcess:
        started.append(WorkerProcess(bootstrap, service, tmp_path, **how))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


@pytest.fixture
def inventory_client(bootstrap: str) -> Iterator[Client]:
    client = Client(bootstrap, "inventory")
    yield client
    client.close()
