"""Two sites in containers: which there are, where they answer, and what the engine knows of them."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event, Semaphore
from types import SimpleNamespace

import pytest

from contracts.kafka_address import bootstrap_of
from infra.base.settings import AWAY_PORTS, StackSettings
from infra.dr.overview import mirror_state
from infra.stack.compose import platform as adapter
from infra.stack.compose.engine import CLUSTER_NODES, Container
from infra.stack.compose.platform import ComposePlatform
from infra.stack.embedded.kafka import kept_cluster_id
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR


def runs(service: str) -> Container:
    return Container(f"shop-{service}-1", service, "running", "healthy", 0, (), "now")


class Engine:
    """An engine that has only been heard of: what it runs, and what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.settings = StackSettings(home=home / "shop-compose", port_base=20_000, stack="compose")
        self.existing: list[Container] = []
        self.canary = 1.0
        self.commands: list[str] = []
        self.output = ""
        monkeypatch.setattr(adapter, "containers", lambda _: self.existing)
        monkeypatch.setattr(adapter, "canary_age", lambda _: self.canary)
        monkeypatch.setattr(adapter, "quietly", self._receive)
        for site in ("home", "away"):
            (self.settings.home / site).mkdir(parents=True)

    def platform(self, *existing: Container) -> ComposePlatform:
        self.existing = list(existing)
        chosen = platform_of(self.settings)
        assert isinstance(chosen, ComposePlatform)
        return chosen

    def _receive(self, _: StackSettings, *command: str) -> str:
        self.commands.append(" ".join(command[1:]))
        return self.output


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    return Engine(monkeypatch, tmp_path)


def test_a_site_is_there_when_one_of_its_brokers_is_and_answers_at_its_own_ports(engine: Engine) -> None:
    assert set(engine.platform(runs("broker"), runs("postgres")).sites()) == {"home"}
    sites = engine.platform(runs("broker-2"), runs("away-broker")).sites()
    assert sites["home"].bootstrap == engine.settings.kafka
    assert sites["away"].settings.port_base == engine.settings.port_base + AWAY_PORTS
    assert bootstrap_of(sites["away"].link) == f"127.0.0.1:{20_295}"
    assert sites["away"].journal.held() == set()
    # given the settings of either
    assert platform_of(sites["away"].settings).sites() == sites


def test_a_site_is_down_without_its_broker(engine: Engine) -> None:
    platform = engine.platform(replace(runs("broker"), state="exited"), runs("away-broker"))
    home, away = platform.sites().values()
    assert not platform.up(home)
    assert platform.up(away)


@pytest.mark.parametrize(
    ("mirror", "canary", "output"),
    [
        ((runs("mirror"),), 1.0, "ready"),
        ((runs("mirror"),), 60.0, "starting"),
        ((replace(runs("mirror"), health="starting"),), 1.0, "starting"),
        ((replace(runs("mirror"), state="exited"),), 1.0, "down"),
        ((), 1.0, "down"),
    ],
)
def test_a_mirror_is_ready_when_its_canaries_are_young(
    engine: Engine, mirror: tuple[Container, ...], canary: float, output: str
) -> None:
    platform, engine.canary = engine.platform(runs("broker"), runs("away-broker"), *mirror), canary
    away = platform.sites()["away"]
    assert mirror_state(away, platform.processes(away), 200) == output


@pytest.mark.parametrize(("copies", "output"), [(503, "stopped"), (0, "starting"), (None, "unknown")])
def test_the_guard_says_of_a_mirror_that_is_not_ready_whether_it_copies(
    engine: Engine, copies: int | None, output: str
) -> None:
    platform, engine.canary = engine.platform(runs("broker"), runs("away-broker"), runs("mirror")), 60.0
    away = platform.sites()["away"]
    assert mirror_state(away, platform.processes(away), copies) == output


def test_a_mirror_that_is_held_stays_down_until_it_is_released(engine: Engine) -> None:
    platform = engine.platform(runs("broker"), runs("away-broker"), runs("mirror"))
    away = platform.sites()["away"]
    platform.stop(away, MIRROR)
    platform.kill(away, MIRROR)
    assert mirror_state(away, platform.processes(away), 200) == "held"
    # a container that waits for its release is no mirror that runs
    assert not platform.processes(away)[MIRROR].running
    assert "docker kill shop-mirror-1".removeprefix("docker ") in engine.commands
    assert not [word for word in engine.commands if word.startswith("start")]
    platform.start(away, MIRROR)
    assert platform.processes(away)[MIRROR].running
    settings, start = engine.commands[-2:]
    assert settings == "compose run --rm --no-deps mirror-settings"
    assert start == "compose up --detach --no-deps mirror"


def test_a_process_that_is_killed_is_started_again_and_a_site_is_not(engine: Engine) -> None:
    platform = engine.platform(runs("broker"), runs("away-broker"), runs("away-postgres"))
    away = platform.sites()["away"]
    platform.kill(away, "broker")
    assert engine.commands == ["kill shop-away-broker-1", "start shop-away-broker-1"]
    engine.commands.clear()
    platform.kill_site(away, ["postgres", "broker"], lambda: engine.commands.append("then"))
    assert engine.commands == ["kill shop-away-postgres-1", "then", "kill shop-away-broker-1", "then"]


def test_the_nodes_of_a_cluster_have_the_names_of_the_embedded_stack(engine: Engine) -> None:
    kept_cluster_id(engine.settings.home)
    nodes = [runs(f"away-{name}") for name in CLUSTER_NODES]
    platform = engine.platform(runs("broker-1"), *nodes, runs("away-postgres"))
    away = platform.sites()["away"]
    assert bootstrap_of(away.bootstrap) == "127.0.0.1:20292,127.0.0.1:20285,127.0.0.1:20286"
    assert bootstrap_of(away.link) == "127.0.0.1:20295,127.0.0.1:20258,127.0.0.1:20259"
    brokers, controllers = away.settings.nodes("broker"), away.settings.nodes("controller")
    assert set(platform.processes(away)) == {*brokers, *controllers, "postgres"}
    platform.stop(away, "broker-1", "controller-2")
    for name in ("broker-1", "controller-2"):
        platform.kill(away, name)
    assert engine.commands == ["kill shop-away-broker-2-1", "kill shop-away-controller-3-1"]
    platform.start(away, "broker-1", "controller-2")
    assert engine.commands[2:] == ["compose up --detach --no-deps away-broker-2 away-controller-3"]


def test_every_disk_of_a_cluster_is_lost(engine: Engine, tmp_path: Path) -> None:
    kept_cluster_id(engine.settings.home)
    existing = [runs(f"away-{name}") for name in (*CLUSTER_NODES, "postgres")]
    platform = engine.platform(*existing)
    disks = {"log": "/var/lib/kafka/data", "rows": "/var/lib/postgresql"}
    mounts = [{"Name": name, "Destination": disk} for name, disk in disks.items()]
    engine.output = json.dumps([{"Mounts": mounts}])
    platform.lose_disks(platform.sites()["away"], tmp_path)
    copied = [command for command in engine.commands if command.startswith("cp ")]
    assert [line.split()[1].partition(":")[0] for line in copied] == [own.name for own in existing]
    services = " ".join(own.service for own in existing)
    assert engine.commands[-2] == f"compose rm --force --stop {services} away-storage"
    assert engine.commands[-1] == f"volume rm {' '.join('log' for _ in CLUSTER_NODES)} rows"


def test_calls_that_wait_share_a_listing_that_began_after_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, listed, waiting, go_on = engine.platform(), list[int](), Semaphore(0), Event()
    called = Semaphore(0)

    def now() -> float:
        called.release()
        return time.monotonic()

    monkeypatch.setattr(adapter, "time", SimpleNamespace(monotonic=now))

    def listing(_: StackSettings) -> list[Container]:
        listed.append(len(listed))
        waiting.release()
        assert go_on.wait(10)
        return [runs("broker")] if len(listed) == 1 else [runs("broker"), runs("away-broker")]

    monkeypatch.setattr(adapter, "containers", listing)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(platform.sites)
        assert waiting.acquire(timeout=10)
        later = [pool.submit(platform.sites) for _ in range(3)]
        for _ in (first, first, *later):  # the first one asks for the time twice
            assert called.acquire(timeout=10)
        go_on.set()
        assert set(first.result()) == {"home"}
        assert [set(call.result()) for call in later] == [{"home", "away"}] * 3
    assert len(listed) == 2
