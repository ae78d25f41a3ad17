"""Every step of the runbook is carried out on two sites, and does what the page says."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import httpx
import pytest

from infra.base.waiting import wait_until
from infra.lab.drills.pair import Kind, Pair, damage
from infra.lab.load.clients import Api, Urls
from infra.stack.site import Site
from tests.dr.conftest import whole
from tests.pages import check, run_walk, walk

RUNBOOK = "docs/how-to/fail-over.md"
SEEN_SECONDS, RESPONDING_SECONDS = 60.0, 300.0

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def home(own_pair: Pair) -> Site:
    """The site `home` of two whole sites, and active, as the page assumes."""
    if not whole(own_pair):
        own_pair.start()
    active, passive, _ = own_pair.roles()
    own_pair.await_mirrored(active, passive)
    if active.name != "home":
        own_pair.run("failover", "--planned")
        own_pair.await_mirrored(passive, active)
    wait_until(
        lambda: own_pair.run("sites"),
        "both sites respond in time",
        RESPONDING_SECONDS,
        enough=lambda shown: "caught up, exactly" in shown and "silent" not in shown,
    )
    return own_pair.sites["home"]


@pytest.mark.usefixtures("home")
def test_planned(own_pair: Pair) -> None:
    carry_out(own_pair, "planned")


def test_unplanned(own_pair: Pair, home: Site) -> None:
    """`home` acknowledges a delivery and an order that the mirror does not copy, and dies."""
    own_pair.cut()
    urls = own_pair.urls[home.name]
    post(urls, f"{urls[Api.INVENTORY]}/stock/MUG-1/receipts", {"quantity": 10, "reference": "delivery 1"})
    line = {"sku": "MUG-1", "quantity": 2, "unit_price": "7.50"}
    order = {"order_id": "walk-1", "country": "Portugal", "currency": "EUR", "lines": [line]}
    post(urls, f"{urls[Api.ORDER]}/orders?wait=settled", order)
    damage(own_pair, home, Kind.DEAD, Random(1))
    own_pair.reconnect()
    carry_out(own_pair, "unplanned")


def test_the_disk_is_lost(own_pair: Pair, home: Site) -> None:
    damage(own_pair, home, Kind.DEAD, Random(1))
    own_pair.platform.destroy(home)
    carry_out(own_pair, "disk")


def carry_out(pair: Pair, name: str) -> None:
    runs = run_walk(walk(RUNBOOK, name), pair.environment)
    for run in runs:
        print(f"{run.seconds:5.1f} s of {run.step.seconds} s: {run.step.command}\n{run.output}")
    check(runs)


def post(urls: Urls, url: str, body: Mapping[str, object]) -> None:
    """Send it until it is accepted: a new site may still prove itself."""
    wait_until(
        lambda: httpx.post(
            url,
            json=body,
            headers={"Idempotency-Key": f"walk-{len(url)}"},
            auth=urls.caller,
            timeout=SEEN_SECONDS,
        ),
        f"{url} accepts",
        SEEN_SECONDS,
        enough=lambda response: response.is_success,
        later=(httpx.TransportError,),
    )
