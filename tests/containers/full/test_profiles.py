"""What a profile adds comes up beside the default one, and does what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.lock import load_lock
from infra.base.http import local_http
from tests.containers.shop import PROCESSES, ContainerShop, eventually

pytestmark = pytest.mark.timeout(2400)
PROMETHEUS, APICURIO, SPARK = 90, 5, 80


def test_monitoring_sees_every_process_and_the_broker(shop: ContainerShop) -> None:
    shop.profile("monitoring")
    eventually(lambda: targets(shop) == {"up"}, "every target is up")
    assert len(active(shop)) == len(PROCESSES) + 1
    body = get_json(
        shop, PROMETHEUS, "/api/v1/query?query=kafka_server_brokertopicmetrics_messagesinpersec_count"
    )
    assert body["data"]["result"], "the broker's JMX came through its exporter"


def test_a_registry_holds_the_lock_under_the_same_ids_also_when_filled_twice(shop: ContainerShop) -> None:
    for _ in range(2):
        shop.profile("registry")
        lock = load_lock()
        for subject in lock.subjects():
            path = f"/apis/ccompat/v7/subjects/{subject}/versions"
            held = [
                get_json(shop, APICURIO, f"{path}/{number}")["id"]
                for number in get_json(shop, APICURIO, path)
            ]
            assert held == [entry.id for entry in lock.versions(subject)]


def test_a_mart_is_computed_from_the_log_on_the_cluster(shop: ContainerShop) -> None:
    shop.profile("analytics")
    assert [worker["state"] for worker in get_json(shop, SPARK, "/json/")["workers"]] == ["ALIVE"]
    output = shop.docker(
        "compose", "--profile", "analytics", "run", "--rm", "--build", "marts", "daily_revenue"
    )
    assert "daily_revenue" in output
    (job,) = get_json(shop, SPARK, "/json/")["completedapps"]
    assert job["state"] == "FINISHED"


def active(shop: ContainerShop) -> list[dict[str, Any]]:
    body: list[dict[str, Any]] = get_json(shop, PROMETHEUS, "/api/v1/targets?state=active")["data"][
        "activeTargets"
    ]
    # the guards are of profile `sites`
    return [target for target in body if target["labels"]["job"] != "guards"]


def targets(shop: ContainerShop) -> set[str]:
    return {target["health"] for target in active(shop)}


@pytest.mark.parametrize("offset", [PROMETHEUS, APICURIO, SPARK])
def test_a_tool_asks_for_the_password(shop: ContainerShop, offset: int) -> None:
    """Also without its profile: the gate is there with any of them."""
    shop.profile("registry")
    for auth in (None, ("shop", "guessed")):
        response = local_http().get(shop.tool(offset), auth=auth)
        assert (response.status_code, response.headers["WWW-Authenticate"][:5]) == (401, "Basic")


def get_json(shop: ContainerShop, offset: int, path: str) -> Any:
    response = local_http().get(shop.tool(offset) + path, auth=shop.tools_password, timeout=30)
    return response.raise_for_status().json()
