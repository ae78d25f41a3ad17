"""Two brokers with all topics of the catalogue: an old active site, and the one that takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.integration.kernel.workers import WorkerProcess
from tests.stack import site_broker

Start = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Their addresses: the old site's, the new one's."""
    folder = tmp_path_factory.mktemp("sites")
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        brokers = pool.map(lambda name: site_broker(folder / name), ("old", "new"))
        old, new = (stack.enter_context(broker) for broker in brokers)
        yield old, new


@pytest.fixture(scope="module")
def start_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start workers (broker, service, settings…); all are ended with the module."""
    started: list[WorkerProcess] = []

    def start(bootstrap: str, service: str, **how: Any) -> WorkerProcess:
        started.append(WorkerProcess(bootstrap, service, tmp_path_factory.mktemp(service), **how))
        return started[-1]

    yield start
    for worker in started:
        worker.end()
