"""The number of processes changes under load, `scale` and workers are killed: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from infra.base.errors import NotDone
from infra.base.journal import StackJournal
from infra.base.settings import ROOT
from infra.base.waiting import wait_until
from infra.dr.repartition import repartition_shop
from infra.dr.scale import scale
from infra.lab.load.load import Load
from infra.log.control import lift_hold, write_hold
from infra.log.topics import catalogue
from infra.stack.shop import DATABASE, USER, database_url
from services.kernel.log.control import read_control
from services.kernel.log.reader import partitions_of
from tests.e2e.load import FIRST, SECOND, load
from tests.e2e.shop import SECONDS, Shop

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
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


@pytest.mark.full
def test_a_change_of_partitions_goes_on_wherever_it_was_interrupted(shop: Shop) -> None:
    kafka = shop.settings.kafka

    def stop_at(step: str) -> None:
        if step == "resetting the read models":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repartition_shop(shop.settings, "order", 4, catalogue(), stop_at)
    exit_code, output = status(shop)
    assert exit_code == 1 and "order-api is not ready: a command keeps it down" in output
    # as if it had been killed between dropping and creating the database, or when all but the start was done
    asyncio.run(_drop_database(shop))
    repartition_shop(shop.settings, "order", 4, catalogue(), print)
    assert_open(shop)
    write_hold(kafka, "quiesced", read_control(kafka).role.epoch)
    repartition_shop(shop.settings, "order", 4, catalogue(), print)
    assert_open(shop)
    with pytest.raises(NotDone, match="has 4 partitions already"):
        repartition_shop(shop.settings, "order", 4, catalogue(), print)


async def _drop_database(shop: Shop) -> None:
    connection = await asyncpg.connect(database_url(shop.settings, USER, "postgres"))
    await connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
    await connection.close()


def assert_open(shop: Shop) -> None:
    """The topics have their partitions, nothing is held, and every process becomes ready."""
    kafka = shop.settings.kafka
    control = read_control(kafka)
    assert (len(partitions_of(kafka, "order.events")), control.layout("order").number > 0) == (4, True)
    assert control.held == "" and not StackJournal(shop.settings.home).held()
    wait_until(lambda: status(shop)[0] == 0, "every process is ready", SECONDS)


def status(shop: Shop) -> tuple[int, str]:
    """The exit code and the output."""
    process = shop.start("status")
    output, _ = process.communicate(timeout=SECONDS)
    return process.returncode, output
