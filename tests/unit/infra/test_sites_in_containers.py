"""Two sites in containers: which there are, where they answer, and what the engine knows of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.base.settings import AWAY_PORTS, StackSettings
from infra.dr.compose_sites import Engine, sites_in_containers
from infra.stack.compose.engine import Container
from infra.stack.site import Site

SETTINGS = StackSettings(home=Path("shop-compose"), port_base=20_000, stack="compose")
NETWORK = ("shop_default",)


def runs(service: str) -> Container:
    return Container(f"shop-{service}-1", service, "running", "healthy", 0, (), NETWORK)


def found(*containers: Container) -> tuple[dict[str, Site], Engine]:
    return sites_in_containers(SETTINGS, containers), Engine(containers)


def test_a_site_is_there_when_one_of_its_brokers_is_and_answers_at_its_own_ports() -> None:
    sites, _ = found(runs("broker"), runs("postgres"))
    assert set(sites) == {"home"}
    sites, _ = found(runs("broker-2"), runs("away-broker"))
    assert sites["home"].bootstrap == sites["home"].link == SETTINGS.kafka
    assert sites["away"].settings.port_base == SETTINGS.port_base + AWAY_PORTS
    assert sites["away"].link == sites["away"].settings.kafka


def test_what_ended_is_down_and_what_is_in_no_network_is_cut() -> None:
    sites, engine = found(runs("broker"), runs("away-broker"))
    assert [(engine.up(site), engine.link(site)) for site in sites.values()] == [(True, "whole")] * 2
    ended = replace(runs("broker"), state="exited")
    sites, engine = found(ended, replace(runs("away-broker"), networks=()))
    assert not engine.up(sites["home"])
    assert engine.link(sites["away"]) == "cut"


@pytest.mark.parametrize(
    ("mirror", "said"),
    [
        ((runs("mirror"),), "ready"),
        ((replace(runs("mirror"), health="starting"),), "starting"),
        ((replace(runs("mirror"), state="exited"),), "exited"),
        ((), "down"),
    ],
)
def test_the_mirror_goes_into_away(mirror: tuple[Container, ...], said: str) -> None:
    sites, engine = found(runs("broker"), runs("away-broker"), *mirror)
    assert engine.mirror(sites["away"]) == said
    assert engine.mirror(sites["home"]) == "none"
