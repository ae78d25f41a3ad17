"""The number of processes changes under load, `scale` and workers are killed: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.base.errors import NotDone
from infra.base.settings import ROOT
from infra.base.waiting import wait_until
from infra.dr.repartition import repartition_shop
from infra.dr.scale import scale
from infra.lab.load.load import Load
from infra.log.control import lift_hold, write_hold
from infra.log.topics import catalogue
from services.kernel.log.control import read_control
from tests.e2e.load import FIRST, SECOND, load
from tests.e2e.shop import SECONDS, Shop

pytestmark = pytest.mark.timeout(900)
# Steps of a change, by the new number of slots: more processes, closing record, fence, opening record; and back, where
# closing record (1) and last fence (3) leave the same: the first of two fences, end of slot 1, opening record.
STEPS = {2: (1, 2, 3, 4), 1: (2, 4, 5)}


def killed(shop: Shop, nth: int, *arguments: str) -> None:
    command = [sys.executable, "-m", "tests.e2e.doomed_scale", str(nth), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=shop.environment, timeout=SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL, f"step {nth} was never reached"


def kill(shop: Shop, name: str) -> None:
    pid = shop.member(name).pid
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.full
def test_scaling_under_load_loses_nothing(shop: Shop, tmp_path: Path) -> None:
    with load(shop.settings, tmp_path, "scaled") as clients:
        for slots, steps in STEPS.items():
            for step in steps:
                killed(shop, step, "scale", "order", str(slots))
            kill(shop, "order-worker")
            kill(shop, "inventory-worker")
            before = len(clients.responses)
            assert f"order: {slots} from now on" in shop.run("scale", "order", "--slots", str(slots))
            assert read_control(shop.settings.kafka).layout("order").slots == slots
            await_responses(clients, before)
            assert ("order-worker-1" in shop.run("status").partition("└")[0]) == (slots == 2)
        apis_and_projections(shop, clients)
    assert "-1 " not in shop.run("status").partition("└")[0]


def await_responses(clients: Load, count: int) -> None:
    wait_until(lambda: len(clients.responses) > count, "clients get outcomes", SECONDS)


def apis_and_projections(shop: Shop, clients: Load) -> None:
    shop.run("scale", "order-api", "2")
    shop.run("scale", "projection", "2")
    assert f"DAYBOOK_ORDER_URL_1={shop.settings.url('order-api-1')}" in shop.run("env")
    clients.switch(SECOND)
    before = len(clients.responses)
    for name in ("projection-1", "order-api-1"):
        kill(shop, name)
    await_responses(clients, before + 100)
    shop.run("scale", "projection", "1")
    clients.switch(FIRST)
    shop.run("scale", "order-api", "1")


@pytest.mark.parametrize(
    ("process", "count", "reason"),
    [
        ("order", 3, "first run `./daybook topics repartition order --partitions 3`"),
        ("order-api", 5, "order.outcomes has 4 partitions, and each process needs one"),
        ("projection", 3, "inventory.events has 2 partitions, and each process needs one"),
        ("query-api", 9, "at most 8 processes"),
    ],
)
def test_too_many_are_refused(shop: Shop, process: str, count: int, reason: str) -> None:
    with pytest.raises(NotDone, match=re.escape(reason)):
        scale(shop.settings, process, count, print)


def test_what_was_interrupted_and_a_write_block_stand_in_the_way(shop: Shop) -> None:
    killed(shop, 2, "scale", "order", "2")
    with pytest.raises(NotDone, match=re.escape("first run `./daybook scale order 1`")):
        repartition_shop(shop.settings, "order", 4, catalogue(), print)
    scale(shop.settings, "order", 1, print)
    write_hold(shop.settings.kafka, "quiesced", read_control(shop.settings.kafka).role.epoch)
    try:
        with pytest.raises(NotDone, match=re.escape("refuses writes (quiesced)")):
            scale(shop.settings, "order", 2, print)
    finally:
        lift_hold(shop.settings.kafka)
