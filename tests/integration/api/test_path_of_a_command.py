"""How many files run from `POST /orders` to the event and back: a newcomer has to read them.

The target is 16 files. `MAX_FILES` is the number that was measured last; it only shrinks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from infra.base.ports import HOST
from tests.integration.api.processes import eventually, ready
from tests.ports import free_ports
from tests.stack import site_broker

# Where commands and outcomes go, limits of a caller, and what a worker reports.
MAX_FILES = 27
SLACK = 4  # periodic tasks run one or two files now and then
LINES = [{"sku": sku, "quantity": 2, "unit_price": "2.55"} for sku in ("MUG", "LAMP")]
ORDER = {"country": "France", "currency": "EUR", "lines": LINES}


@contextmanager
def traced(part: str, kafka: str, target: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The order service's part, and its port."""
    port, health = free_ports(2)
    environment = {
        **os.environ,
        "DAYBOOK_KAFKA": kafka,
        "DAYBOOK_HTTP_PORT": str(port),
        "DAYBOOK_HEALTH_PORT": str(port if part == "worker" else health),
        "DAYBOOK_HASH_KEY": "a key for tests alone",
    }
    command = [sys.executable, "-m", "tests.integration.api.traced", "order", part, str(target)]
    process = subprocess.Popen(command, env=environment)
    try:
        eventually(lambda: ready(process, port), f"the {part} did not become ready")
        yield process, port
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files that ran in the worker and the API while one order was placed."""
    folder = tmp_path_factory.mktemp("path")
    targets = {part: folder / part for part in ("worker", "api")}
    with ExitStack() as stack:
        kafka = stack.enter_context(site_broker(folder))
        started = {part: stack.enter_context(traced(part, kafka, file)) for part, file in targets.items()}
        client = stack.enter_context(
            httpx.Client(base_url=f"http://{HOST}:{started['api'][1]}", trust_env=False)
        )
        assert client.post("/orders", json=ORDER).status_code == 201
        for process, _ in started.values():
            process.send_signal(signal.SIGUSR1)
        assert client.post("/orders", json=ORDER).status_code == 201
        for process, _ in started.values():
            process.send_signal(signal.SIGUSR2)
        for part, file in targets.items():
            eventually(file.exists, f"the {part} wrote no list")
    return sorted({name for file in targets.values() for name in json.loads(file.read_text())})


def test_few_files_run_from_a_request_to_its_event(path: list[str]) -> None:
    print(f"{len(path)} files run from POST /orders to the event and back:", *path, sep="\n  ")
    assert len(path) <= MAX_FILES, "more files run: merge or remove one"
    assert len(path) > MAX_FILES - SLACK, f"lower MAX_FILES to {len(path)}"
    assert {
        "services/order/api.py",
        "services/kernel/worker/execution.py",
        "services/order/domain/decider.py",
    } <= {*path}
