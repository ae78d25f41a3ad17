"""The whole shop on three brokers in containers: the demo, and brokers that fail one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.base.settings import ROOT, StackSettings
from tests.containers.shop import PROJECT, ContainerShop, running

pytestmark = pytest.mark.timeout(2400)
BROKERS = ("broker-1", "broker-2", "broker-3")
APART = 400  # its ports, beyond those of the other shop and its second site


@pytest.fixture(scope="module")
def cluster(shop: ContainerShop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerShop]:
    settings = StackSettings(
        home=tmp_path_factory.mktemp("cluster") / "home", port_base=shop.settings.port_base + APART
    )
    variables = {"COMPOSE_ENV_FILES": str(ROOT / "infra" / "compose" / "cluster.env")}
    with running(ContainerShop(settings, f"{PROJECT}-cluster", (*BROKERS, "postgres"), variables)) as cluster:
        yield cluster


def test_the_demo_runs_on_it(cluster: ContainerShop) -> None:
    assert "nothing has changed" in cluster.run("demo", "--small", "--no-spark")


def test_six_failures_a_broker_among_them_and_nothing_is_lost_or_doubled(
    cluster: ContainerShop, tmp_path: Path
) -> None:
    assert {f"kill {broker}" for broker in BROKERS} & set(cluster.drill(tmp_path).broken)


@pytest.mark.parametrize(
    "named",
    [
        ("--failure=pause", "--failure=cut", "--container=broker-2", "--container=broker-3"),
        ("--failure=restart", "--failure=kill", "--container=broker-1", "--container=controller"),
    ],
)
def test_brokers_and_the_controller_fail_and_nothing_is_lost_or_doubled(
    cluster: ContainerShop, named: tuple[str, ...], tmp_path: Path
) -> None:
    assert len(cluster.drill(tmp_path, *named).broken) == 4
