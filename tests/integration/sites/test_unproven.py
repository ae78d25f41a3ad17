"""A process of two sites that started, or did not run: it acts again when it has seen the other site, or is alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from infra.stack.tokens import caller_of
from services.kernel.log.control import read_control
from services.kernel.record.envelope import uuid7
from tests.integration.sites.rig import TwoSites, eventually, two_sites

pytestmark = pytest.mark.long

LINES = [{"sku": "MUG", "quantity": 1, "unit_price": "2.55"}]
ORDER = {"country": "France", "currency": "EUR", "lines": LINES}
MEMBERS = ("broker", "link", "guard", "order-worker", "inventory-worker", "order-api")
FROZEN_SECONDS = 3.0  # longer than a gap


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoSites]:
    folder: Path = tmp_path_factory.mktemp("unproven") / "home"
    with two_sites(folder, *MEMBERS) as stack:
        eventually(lambda: status_of_order(stack) == "201")
        yield stack


@pytest.fixture(autouse=True)
def joined(stack: TwoSites) -> Iterator[None]:
    yield
    assert stack.run("sites", "heal").returncode == 0
    eventually(lambda: status_of_order(stack) == "201")


def status_of_order(stack: TwoSites) -> str:
    """The status of a new order at home, or the code of a 503; empty where nothing responds."""
    try:
        url = f"{stack.home.settings.url('order-api')}/orders"
        headers = {"Idempotency-Key": uuid7(), **caller_of(stack.home.settings).headers()}
        response = httpx.post(url, json=ORDER, headers=headers, timeout=15)
    except httpx.HTTPError:
        return ""
    return str(response.json()["code"]) if response.status_code == 503 else str(response.status_code)


def pid_of(stack: TwoSites, name: str) -> int:
    pid, _ = stack.member(stack.home, name)
    assert pid is not None
    return pid


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(FROZEN_SECONDS)
    os.kill(pid, signal.SIGCONT)


def test_a_frozen_api_acts_when_it_has_seen_the_other_site(stack: TwoSites) -> None:
    freeze(pid_of(stack, "order-api"))
    eventually(lambda: status_of_order(stack) == "201", 20)
    assert stack.run("sites", "cut").returncode == 0
    freeze(pid_of(stack, "order-api"))
    assert status_of_order(stack) == "site_unproven"
    time.sleep(FROZEN_SECONDS)
    assert status_of_order(stack) == "site_unproven"


def test_a_frozen_worker_executes_nothing_until_then(stack: TwoSites) -> None:
    assert stack.run("sites", "cut").returncode == 0
    freeze(pid_of(stack, "order-worker"))
    assert status_of_order(stack) == "outcome_unknown"


def test_an_operator_lets_a_site_write_alone(stack: TwoSites) -> None:
    refused = stack.run("sites", "alone", "home")
    assert (refused.returncode, "home sees away" in refused.stderr) == (1, True)
    assert stack.run("sites", "cut").returncode == 0
    before = pid_of(stack, "order-api")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: stack.member(stack.home, "order-api")[1] and pid_of(stack, "order-api") != before)
    assert status_of_order(stack) == "site_unproven"
    assert stack.run("sites", "alone", "home").returncode == 0
    eventually(lambda: status_of_order(stack) == "201", 10)
    assert stack.run("sites", "heal").returncode == 0
    eventually(lambda: not read_control(stack.home.bootstrap).alone)
