"""The second site in containers holds the same log and the same read models, and takes no commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest

from infra.base.settings import AWAY_PORTS, StackSettings
from infra.dr.comparison import compare
from infra.dr.overview import SitesView
from infra.lab.drills.judgement import digests
from infra.stack.shop import database_url
from infra.stack.tokens import caller_of
from tests.containers.shop import ContainerShop, eventually

pytestmark = pytest.mark.timeout(2400)


@pytest.fixture(scope="module")
def away(shop: ContainerShop) -> StackSettings:
    """The settings of the second site, once it stands."""
    shop.profile("sites")
    return shop.settings.model_copy(update={"port_base": shop.settings.port_base + AWAY_PORTS})


def test_it_follows_also_after_its_mirror_was_killed(
    shop: ContainerShop, away: StackSettings, tmp_path: Path
) -> None:
    drill = shop.drill(tmp_path, "--failure=kill", "--container=mirror")
    eventually(lambda: compare(shop.settings.kafka, away.kafka).missing == 0, "the mirror has copied all")
    comparison = compare(shop.settings.kafka, away.kafka)
    assert comparison.different == ()
    assert comparison.records > drill.commands
    here = asyncio.run(digests(database_url(shop.settings)))
    eventually(lambda: asyncio.run(digests(database_url(away))) == here, "both read models are equal")
    assert len(here) > 100


def test_the_command_shows_both_sites_and_how_far_the_mirror_is(
    shop: ContainerShop, away: StackSettings
) -> None:
    eventually(lambda: compare(shop.settings.kafka, away.kafka).missing == 0, "the mirror has copied all")
    output = shop.run("sites", "--json")
    view = msgspec.json.decode(output[output.index("{") :], type=SitesView)
    home, other = view.sites
    assert (home.name, home.role, home.mirror) == ("home", "active", "held")
    assert (other.name, other.role, other.mirror) == ("away", "passive", "ready")
    assert {*home.workers.values()} == {"active"}
    assert {*other.workers.values()} == {"standby"}
    assert view.mirror is not None
    assert (view.mirror.source, view.mirror.target, view.mirror.events) == ("home", "away", 0)


def test_it_takes_no_commands_and_says_where_to_go(shop: ContainerShop, away: StackSettings) -> None:
    receipt = {"quantity": 1, "reference": "at the wrong site"}
    refused = httpx.post(
        f"{away.url('inventory-api')}/stock/MUG-1/receipts",
        json=receipt,
        headers={"Idempotency-Key": "wrong-site"},
        auth=caller_of(away),
        trust_env=False,
        timeout=30,
    )
    assert refused.status_code == 503
    assert refused.json()["code"] == "site_passive"
    assert refused.json()["active_site"] == shop.settings.url("inventory-api")
    url = f"{away.url('query-api')}/projections"
    read = httpx.get(url, auth=caller_of(away), trust_env=False, timeout=30)
    assert read.status_code == 200
