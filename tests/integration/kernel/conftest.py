"""The kernel's tests have a broker of their own: they kill and freeze its clients and read its whole log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kernel.client import Client
from tests.integration.kernel.witness import Witness
from tests.integration.kernel.workers import WorkerProcess
from tests.stack import site_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with all topics of the catalogue, for one module."""
    with site_broker(tmp_path_factory.mktemp("kernel")) as bootstrap:
        yield bootstrap


@pytest.fixture
def start_worker(bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts workers (see WorkerProcess) and ends all of them after the test."""
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


@pytest.fixture
def order_client(bootstrap: str) -> Iterator[Client]:
    client = Client(bootstrap, "order")
    yield client
    client.close()


@pytest.fixture
def witness(bootstrap: str) -> Iterator[Witness]:
    witness = Witness(bootstrap)
    yield witness
    witness.close()
