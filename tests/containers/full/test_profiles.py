"""What a profile adds comes up beside the default one, and does what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.lock import load_lock
from infra.base.http import local_http
from infra.base.ports import HOST
from tests.containers.shop import PROCESSES, ContainerShop, eventually

pytestmark = pytest.mark.timeout(2400)
PROMETHEUS, APICURIO, SPARK = 90, 5, 80


def test_monitoring_sees_every_process_and_the_broker(shop: ContainerShop) -> None:
    shop.profile("monitoring")
    eventually(lambda: targets(shop) == {"up"}, "every target is up")
    assert len(active(shop)) == len(PROCESSES) + 1
    found = ask(
        shop, PROMETHEUS, "/api/v1/query?query=kafka_server_brokertopicmetrics_messagesinpersec_count"
    )
    assert found["data"]["result"], "the broker's JMX came through its exporter"


def test_a_registry_holds_the_lock_under_the_same_ids_also_when_filled_twice(shop: ContainerShop) -> None:
    for _ in range(2):
        shop.profile("registry")
        lock = load_lock()
        for subject in lock.subjects():
            path = f"/apis/ccompat/v7/subjects/{subject}/versions"
            held = [ask(shop, APICURIO, f"{path}/{number}")["id"] for number in ask(shop, APICURIO, path)]
            assert held == [entry.id for entry in lock.versions(subject)]


def test_a_mart_is_computed_from_the_log_on_the_cluster(shop: ContainerShop) -> None:
    shop.profile("analytics")
    assert [worker["state"] for worker in ask(shop, SPARK, "/json/")["workers"]] == ["ALIVE"]
    said = shop.docker(
        "compose", "--profile", "analytics", "run", "--rm", "--build", "marts", "daily_revenue"
    )
    assert "daily_revenue" in said
    (job,) = ask(shop, SPARK, "/json/")["completedapps"]
    assert job["state"] == "FINISHED"


def active(shop: ContainerShop) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(shop, PROMETHEUS, "/api/v1/targets?state=active")["data"][
        "activeTargets"
    ]
    return found


def targets(shop: ContainerShop) -> set[str]:
    return {target["health"] for target in active(shop)}


def ask(shop: ContainerShop, offset: int, path: str) -> Any:
    url = f"http://{HOST}:{shop.settings.port_base + offset}{path}"
    return local_http().get(url, timeout=30).raise_for_status().json()
