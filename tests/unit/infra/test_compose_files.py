"""The compose files say what the embedded stack says: ports, processes, settings; and no secret."""

from pathlib import Path
from typing import Any

import yaml

from infra.cluster.replicated import WANTED
from infra.embedded.stack import SERVICES, STORES
from infra.settings import OFFSETS, ROOT

COMPOSE = ROOT / "infra" / "compose"
PORTS = "127.0.0.1:${DAYBOOK_PORTS:-274}"


def services(file: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / file).read_text())["services"]
    return found


def properties(file: Path) -> dict[str, str]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_processes_are_those_of_the_embedded_stack_and_run_the_same_code() -> None:
    embedded = {one.name: [one.module, *([one.part] if one.part else [])] for row in SERVICES for one in row}
    here = {name: one["command"] for name, one in services("shop.yml").items() if name in embedded}
    assert here == embedded
    assert set(services("shop.yml")) - set(embedded) == {*STORES, "topics", "migrations"}


def test_what_is_published_has_the_port_of_the_embedded_stack_and_is_of_this_machine_alone() -> None:
    published = {name: one["ports"] for name, one in services("shop.yml").items() if "ports" in one}
    assert {"broker", "postgres", "order-api", "inventory-api", "query-api"} <= set(published)
    for name, ports in published.items():
        assert [port.rpartition(":")[0] for port in ports] == [f"{PORTS}{OFFSETS[name]:02}"]


def test_every_secret_is_a_file() -> None:
    text = (COMPOSE / "shop.yml").read_text()
    assert all(set(one) == {"file"} for one in yaml.safe_load(text)["secrets"].values())
    assert "PASSWORD:" not in text


def test_the_cluster_keeps_what_the_embedded_one_keeps() -> None:
    assert WANTED.items() <= properties(ROOT / "infra" / "kafka" / "replicated.properties").items()
    racks = {
        one["environment"].get("KAFKA_BROKER_RACK")
        for one in services("cluster.yml").values()
        if "environment" in one
    }
    assert racks == {None, "rack-1", "rack-2", "rack-3"}


def test_prometheus_asks_every_process() -> None:
    scraped = yaml.safe_load((ROOT / "infra" / "monitoring" / "prometheus.yml").read_text())
    (targets,) = scraped["scrape_configs"][0]["static_configs"]
    assert set(targets["targets"]) == {f"{one.name}:8080" for row in SERVICES for one in row}
