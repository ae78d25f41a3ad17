"""The default profile: it comes up, does what the README says, and survives what happens to containers."""

import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from infra.lab.load.clients import Api
from infra.lab.load.shop import api_urls
from tests.containers.shop import PROCESSES, ContainerShop, eventually
from tests.pages import check, run_walk, walk

pytestmark = pytest.mark.timeout(2400)


def test_everything_is_up(shop: ContainerShop) -> None:
    assert "ended with 0" in shop.run("status")  # and its exit code is 0: all are healthy
    assert "are those of the catalogue" in shop.run("topics", "--check")


def test_the_walk_of_the_readme(shop: ContainerShop) -> None:
    steps = [
        replace(step, command=step.command.replace("./daybook env", "./daybook --stack compose env"))
        for step in walk("README.md")
    ]
    runs = run_walk(steps, shop.environment)
    check(runs)
    assert re.findall(r'"status": ?"(\w+)"', runs[-1].output)[-1] == "shipped"


def test_the_demo_in_small(shop: ContainerShop) -> None:
    output = shop.run("demo", "--small", "--no-spark")
    assert "nothing has changed" in output
    assert "1 rejected" in output


def test_six_failures_and_nothing_is_lost_or_doubled(shop: ContainerShop, tmp_path: Path) -> None:
    drilled = shop.drill(tmp_path)
    assert len(drilled.broken) == 6
    assert {"kill broker", "cut projection", "pause inventory-worker"} <= set(drilled.broken)
    assert drilled.commands > 100


def test_a_nearly_full_disk_refuses_writes_until_there_is_room(shop: ContainerShop) -> None:
    """The disk is the engine's: what is free stays as it is, what counts as full is moved."""
    order = {
        "country": "France",
        "currency": "EUR",
        "lines": [{"sku": "x", "quantity": 1, "unit_price": "1.00"}],
    }
    urls = api_urls(shop.settings)

    def status() -> int:
        return httpx.post(f"{urls[Api.ORDER]}/orders", json=order, auth=urls.caller).status_code

    try:
        shop.docker(
            "compose", "up", "-d", "--wait", "storage", more={"DAYBOOK_STORAGE_RESERVE_MB": "999000000"}
        )
        eventually(lambda: status() == 507, "writes are refused")
        code, output = shop.status()
        assert code == 1
        assert re.search(r"storage: /disks/\w+ has [\d,]+ MB \([\d,]+ bytes\) free", output)
    finally:
        shop.docker("compose", "up", "-d", "--wait", "storage")
    eventually(lambda: status() == 201, "writes are taken again")
    assert shop.status()[0] == 0


def test_a_process_that_is_silent_is_ended_and_begins_anew(shop: ContainerShop) -> None:
    before = shop.restarts("order-worker")
    shop.docker("exec", shop.container("order-worker"), "bash", "-c", "kill -STOP -1")
    eventually(lambda: shop.restarts("order-worker") > before, "the silent worker is restarted")
    shop.await_all()


def test_told_to_stop_every_process_ends_by_itself(shop: ContainerShop) -> None:
    shop.docker("stop", *(shop.container(service) for service in PROCESSES))
    try:
        codes = {service: shop.state(service)["ExitCode"] for service in PROCESSES}
        # 143: in order, and then by the signal that it was told with; 137 would be the engine's patience
        assert set(codes.values()) <= {0, 143}, codes
    finally:
        shop.docker("start", *(shop.container(service) for service in PROCESSES))
    shop.await_all()
