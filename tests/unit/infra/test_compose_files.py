"""The compose files say what the embedded stack says: ports, processes, settings; and no secret."""

from pathlib import Path
from typing import Any

import yaml

from infra.base.settings import AWAY_PORTS, OFFSETS, ROOT
from infra.lab.cluster.replicated import WANTED
from infra.stack.shop import SERVICES, STORES
from infra.stack.storage import START_BYTES

COMPOSE = ROOT / "infra" / "compose"
PORTS = "127.0.0.1:${DAYBOOK_PORTS:-274}"


class Compose(yaml.SafeLoader):
    """YAML with compose's own tag for what replaces, and does not add to, what is extended."""


def replaced(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node)


Compose.add_constructor("!override", replaced)


def services(file: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.load((COMPOSE / file).read_text(), Compose)["services"]
    return found


def properties(file: Path) -> dict[str, str]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_processes_are_those_of_the_embedded_stack_and_run_the_same_code() -> None:
    embedded = {one.name: [one.module, *([one.part] if one.part else [])] for row in SERVICES for one in row}
    here = {name: one["command"] for name, one in services("shop.yml").items() if name in embedded}
    assert here == embedded
    assert set(services("shop.yml")) - set(embedded) == {*STORES, "topics", "migrations", "storage"}


def test_what_is_published_has_the_port_of_the_embedded_stack_and_is_of_this_machine_alone() -> None:
    published = {name: one["ports"] for name, one in services("shop.yml").items() if "ports" in one}
    assert {*STORES, "order-worker", "order-api", "inventory-worker", "inventory-api", "query-api"} <= set(
        published
    )
    for name, ports in published.items():
        assert [port.rpartition(":")[0] for port in ports] == [f"{PORTS}{OFFSETS[name]:02}"]


def test_the_second_site_runs_the_same_code_at_ports_of_its_own() -> None:
    away = services("sites.yml")
    for row in SERVICES:
        for one in row:
            if one.name != "registry":  # the repository is the registry of both
                assert away[f"away-{one.name}"]["command"] == [one.module, one.part]
                assert away[f"away-{one.name}"]["environment"]["DAYBOOK_SITE"] == "away"
    published = {name: one["ports"] for name, one in away.items() if "ports" in one}
    assert {"away-broker", "away-order-api", "away-query-api", "guard", "away-guard"} <= set(published)
    for name, ports in published.items():
        base = f"127.0.0.1:${{DAYBOOK_AWAY_PORTS:-{274 + AWAY_PORTS // 100}}}" if "away" in name else PORTS
        offset = OFFSETS[name.removeprefix("away-")]
        assert [port.rpartition(":")[0] for port in ports] == [f"{base}{offset:02}"]


def test_every_process_answers_to_its_own_name() -> None:
    hosts = services("process.yml")["process"]["environment"]["DAYBOOK_ALLOWED_HOSTS"]
    assert {"127.0.0.1", "localhost"} < (
        allowed := set(hosts.removeprefix("${DAYBOOK_ALLOWED_HOSTS:-")[:-1].split(","))
    )
    processes = {
        name
        for file in ("shop.yml", "sites.yml")
        for name, one in services(file).items()
        if one.get("extends") == {"file": "process.yml", "service": "process"}
    }
    assert {f"{one.name}" for row in SERVICES for one in row} < processes < allowed


def test_a_write_api_knows_the_same_api_at_the_other_site() -> None:
    home, away = services("shop.yml"), services("sites.yml")
    theirs = f"127.0.0.1:${{DAYBOOK_AWAY_PORTS:-{274 + AWAY_PORTS // 100}}}"
    for name in ("order-api", "inventory-api"):
        port = f"{OFFSETS[name]:02}"
        assert home[name]["environment"]["DAYBOOK_PEER_URL"] == f"http://{theirs}{port}"
        assert away[f"away-{name}"]["environment"]["DAYBOOK_PEER_URL"] == f"http://{PORTS}{port}"


def test_no_broker_is_started_and_no_disk_is_filled_without_room() -> None:
    """On a full disk a broker empties its logs: the engine's own restart waits, as the supervisor's does."""
    assert f"free * 1024 >= {START_BYTES}" in (ROOT / "infra" / "stack" / "compose" / "with-room").read_text()
    for file, name in (("shop.yml", "broker"), ("node.yml", "node")):
        broker = services(file)[name]
        assert broker["command"][:2] == ["with-room", broker["environment"]["KAFKA_LOG_DIRS"]]
        assert "../stack/compose/with-room:/usr/local/bin/with-room:ro" in broker["volumes"]
    for file, site in (("shop.yml", ""), ("sites.yml", "away-")):
        stores = [f"{site}{store}:/disks/{store}:ro" for store in STORES]
        assert services(file)[f"{site}storage"]["volumes"] == stores


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
    assert set(targets["targets"]) == {
        "storage:8080",
        *(f"{one.name}:8080" for row in SERVICES for one in row),
    }
