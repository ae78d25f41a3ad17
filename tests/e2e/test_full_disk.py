"""The disk of a shop under load fills up, slowly or at once. The shop recovers by itself when space is free."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra.base.journal import StackJournal, StackState
from infra.base.settings import ROOT
from infra.base.waiting import wait_until
from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from infra.lab.drills.judgement import for_checker
from infra.lab.load.clients import Api
from infra.lab.load.load import Load
from infra.lab.load.orders import Shopping
from infra.lab.load.shop import Shop as Reader
from infra.lab.load.shop import api_urls
from tests.e2e.shop import SECONDS, Shop
from tests.ports import free_base
from tests.small_disk import SmallDisk, small_disk

DISK, RESERVE, NEARLY_FULL = 400, 130, 110  # MB; an empty shop takes 50, its load some more
ORDER = {"country": "France", "currency": "EUR", "lines": [{"sku": "x", "quantity": 1, "unit_price": "1.00"}]}
RATE = 10.0
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


class SmallShop(Shop):
    """A shop whose state is on a small disk."""

    def __init__(self, disk: SmallDisk) -> None:
        super().__init__(disk.folder / "home", free_base())
        self.disk = disk
        self.settings = self.settings.model_copy(update={"home": disk.seen / "home"})
        self.environment = {**self.environment, "DAYBOOK_STORAGE_RESERVE_MB": str(RESERVE)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.disk.enter, sys.executable, "-m", "infra.cli", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def status(self) -> tuple[int, str]:
        process = self.start("status")
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output

    def state(self) -> StackState:
        state = StackJournal(self.settings.home).read()
        assert state is not None
        return state

    def events(self) -> set[tuple[str, str]]:
        return {(event["process"], event["event"]) for event in StackJournal(self.settings.home).events()}

    def write(self) -> tuple[int, str]:
        """Status and code of an attempt to place an order."""
        urls = api_urls(self.settings)
        response = httpx.post(f"{urls[Api.ORDER]}/orders", json=ORDER, auth=urls.caller, timeout=30)
        return response.status_code, response.json().get("code", "")


@pytest.fixture(scope="module")
def small_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallShop]:
    with small_disk(tmp_path_factory.mktemp("small") / "disk", DISK) as disk:
        shop = SmallShop(disk)
        try:
            shop.run("up")
            yield shop
        finally:
            shop.run("down")


def eventually(true: Callable[[], bool], what: str) -> None:
    wait_until(true, what, SECONDS, every=0.2)


def load_of(shop: SmallShop, name: str, folder: Path) -> Load:
    return Load(
        {"home": api_urls(shop.settings)}, "home", Shopping(1, name), folder / "responses.jsonl", RATE
    )


def await_acknowledged(load: Load, more: int) -> None:
    target = len(load.responses) + more
    eventually(lambda: len(load.responses) >= target, "nothing is acknowledged")


def nothing_is_lost(shop: SmallShop, load: Load) -> None:
    """Acknowledged commands are in the log and in the read models, and the log is valid."""
    assert load.finish() == [], "commands without a response"
    with Reader(api_urls(shop.settings)) as reader:
        reader.await_rest(SECONDS)
        for response in load.responses:
            if response.accepted and response.kind != "delivery":
                read_back = reader.get(f"/orders/{response.entity}", {"Consistency-Token": response.token})
                assert read_back.status_code == 200, (response, read_back.text)
    acknowledged = [for_checker(response) for response in load.responses]
    assert check(Evidence(read_evidence(shop.settings.kafka), acknowledged, at_rest=True)) == []


def test_writes_stop_while_there_is_room_and_resume_by_themselves(
    small_shop: SmallShop, tmp_path: Path
) -> None:
    shop, disk = small_shop, small_shop.disk
    with load_of(shop, "slowly", tmp_path) as load:
        await_acknowledged(load, 30)
        pids = {member.pid for member in shop.state().members}
        disk.leave(NEARLY_FULL)
        eventually(lambda: shop.write() == (507, "storage_full"), "writes are still accepted")
        order = next(row for row in reversed(load.responses) if row.accepted and row.kind == "order")
        with Reader(api_urls(shop.settings)) as reader:
            assert reader.get(f"/orders/{order.entity}", {"Consistency-Token": order.token}).is_success
        code, output = shop.status()
        assert code == 1
        assert (
            f"storage: {disk.folder / 'home'} has " in output and " bytes) free: writes are refused" in output
        )
        assert disk.free() > NEARLY_FULL // 2 * 1_000_000, "the log goes on growing"
        disk.clear()
        await_acknowledged(load, 30)
        assert shop.status()[0] == 0
        assert {member.pid for member in shop.state().members} == pids, "a process died"
        nothing_is_lost(shop, load)


@pytest.mark.full
def test_a_disk_that_is_full_at_once_stops_nothing_for_good(small_shop: SmallShop, tmp_path: Path) -> None:
    shop, disk = small_shop, small_shop.disk
    supervisor, broker = shop.state().supervisor, shop.member("broker").pid
    assert broker is not None
    with load_of(shop, "at-once", tmp_path) as load:
        await_acknowledged(load, 30)
        disk.fill()
        eventually(lambda: not psutil.pid_exists(broker), "the broker still runs on a full disk")
        eventually(lambda: shop.write()[0] == 503, "writes are accepted without a broker")
        _, output = shop.status()
        assert f"storage: {disk.folder / 'home'} has " in output
        assert psutil.Process(supervisor).status() != psutil.STATUS_ZOMBIE
        disk.clear()
        await_acknowledged(load, 30)
        eventually(lambda: shop.status()[0] == 0, "not every process is running again")
        assert shop.state().supervisor == supervisor
        assert {("storage", "short"), ("broker", "died"), ("storage", "enough")} <= shop.events()
        nothing_is_lost(shop, load)
