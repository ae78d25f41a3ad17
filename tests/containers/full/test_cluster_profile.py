"""The whole shop on three brokers in containers: the demo, and brokers that fail one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.settings import ROOT, StackSettings
from tests.containers.failures import cut_off, killed, lived_through, paused, restarted
from tests.containers.shop import PROJECT, ContainerShop, running

pytestmark = pytest.mark.timeout(2400)
BROKERS = ("broker-1", "broker-2", "broker-3")
APART = 400  # its ports, beyond those of the other shop and its second site


@pytest.fixture(scope="module")
def cluster(shop: ContainerShop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerShop]:
    settings = StackSettings(
        home=tmp_path_factory.mktemp("cluster") / "home", port_base=shop.settings.port_base + APART
    )
    told = {"COMPOSE_ENV_FILES": str(ROOT / "infra" / "compose" / "cluster.env")}
    with running(ContainerShop(settings, f"{PROJECT}-cluster", (*BROKERS, "postgres"), told)) as cluster:
        yield cluster


def test_the_demo_runs_on_it(cluster: ContainerShop) -> None:
    assert "nothing has changed" in cluster.run("demo", "--small", "--no-spark")


def test_each_broker_fails_in_its_way_and_nothing_is_lost_or_doubled(
    cluster: ContainerShop, tmp_path: Path
) -> None:
    failures = (
        (killed, "broker-1"),
        (paused, "broker-2"),
        (cut_off, "broker-3"),
        (restarted, "broker-1"),
        (killed, "controller"),
    )
    lived_through(cluster, failures, "cluster", tmp_path / "told")
