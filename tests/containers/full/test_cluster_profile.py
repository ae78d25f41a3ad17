"""The whole shop on three brokers and three controllers in containers: the demo, and failures one after the other."""

from __future__ import annotations

import json
import re
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
        ("--failure=cut", "--failure=kill", "--container=controller-2", "--container=controller-3"),
    ],
)
def test_brokers_and_controllers_fail_and_nothing_is_lost_or_doubled(
    cluster: ContainerShop, named: tuple[str, ...], tmp_path: Path
) -> None:
    assert len(cluster.drill(tmp_path, *named).broken) == 4


@pytest.mark.parametrize(("name", "number"), [("controller-2", "101"), ("controller", "100")])
def test_a_controller_that_lost_its_disk_votes_again(cluster: ContainerShop, name: str, number: str) -> None:
    before = voters(cluster)
    cluster.docker("compose", "--profile", "cluster", "rm", "--force", "--stop", name)
    cluster.docker("volume", "rm", f"{cluster.project}_{name}")
    cluster.run("up")
    after = voters(cluster)
    assert {own for own in before if before[own] != after[own]} == {number}
    assert set(before) == set(after) == {"100", "101", "102"}


def voters(cluster: ContainerShop) -> dict[str, str]:
    """The directory of each controller that votes."""
    run = ["compose", "--profile", "cluster", "run", "--rm", "--no-deps"]
    tool = ["--entrypoint", "/opt/kafka/bin/kafka-run-class.sh", "controller-proof"]
    tool.append("org.apache.kafka.tools.MetadataQuorumCommand")
    where = ["--bootstrap-controller", "controller:9093,controller-2:9093,controller-3:9093"]
    where += ["--command-config", "/run/secrets/client.properties"]
    status = cluster.docker(*run, *tool, *where, "describe", "--status")
    (line,) = re.findall(r"^CurrentVoters: *(.*)$", status, re.MULTILINE)
    return {str(voter["id"]): voter["directoryId"] for voter in json.loads(line)}
