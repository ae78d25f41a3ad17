"""The compose files say what the embedded stack says: ports, processes, settings; and no secret."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from contracts.kafka_address import IDENTITY, SCHEME
from infra.base.settings import AWAY_PORTS, CLUSTER, OFFSETS, ROOT, StackSettings
from infra.identity.issuer import TokenIssuer
from infra.lab.cluster.administration import DURABLE
from infra.stack.compose.engine import CLUSTER_NODES, compose_environment, keep_two_sites
from infra.stack.compose.further import further_file, write_further
from infra.stack.compose.secret_files import RUN_SECRETS
from infra.stack.embedded.kafka import kept_cluster_id
from infra.stack.shop import ROUTED, ROUTER, SERVICES, STORES, instances
from infra.stack.storage import START_BYTES

COMPOSE = ROOT / "infra" / "compose"
PORTS = "127.0.0.1:${DAYBOOK_PORTS:-274}"
CONTROLLERS, BROKERS = CLUSTER_NODES[CLUSTER:], CLUSTER_NODES[:CLUSTER]
HOSTS, LINKS = instances("broker", CLUSTER), instances("link", CLUSTER)


class Compose(yaml.SafeLoader):
    """YAML with compose's own tag for what replaces, and does not add to, what is extended."""


def replaced(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node)


Compose.add_constructor("!override", replaced)


def services(file: str) -> dict[str, dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = yaml.load((COMPOSE / file).read_text(), Compose)["services"]
    return by_name


def address(bootstrap: str) -> str:
    """As a process gets it: secured, unless the variable is empty."""
    return f"${{DAYBOOK_KAFKA_SCHEME-{SCHEME}}}{bootstrap}{IDENTITY}/run/secrets/kafka.json"


def properties(file: Path) -> dict[str, str]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_processes_are_those_of_the_embedded_stack_and_run_the_same_code() -> None:
    embedded = {
        service.name: [service.module, *([service.part] if service.part else [])]
        for row in SERVICES
        for service in row
    }
    here = {name: service["command"] for name, service in services("shop.yml").items() if name in embedded}
    assert here == embedded
    steps = {"secrets", "topics", "migrations"}
    assert set(services("shop.yml")) - set(embedded) == {*STORES, *steps, "storage"}


def test_what_is_published_has_the_port_of_the_embedded_stack_and_is_of_this_machine_alone() -> None:
    published = {
        name: service["ports"] for name, service in services("shop.yml").items() if "ports" in service
    }
    assert {*STORES, "order-worker", "order-api", "inventory-worker", "inventory-api", "query-api"} <= set(
        published
    )
    for name, ports in published.items():
        assert [port.rpartition(":")[0] for port in ports] == [f"{PORTS}{OFFSETS[name]:02}"]


def test_the_second_site_runs_the_same_code_at_ports_of_its_own() -> None:
    away = services("sites.yml")
    for row in SERVICES:
        for service in row:
            if service.name != "registry":  # the repository is the registry of both
                assert away[f"away-{service.name}"]["command"] == [service.module, service.part]
                assert away[f"away-{service.name}"]["environment"]["DAYBOOK_SITE"] == "away"
    published = {name: service["ports"] for name, service in away.items() if "ports" in service}
    assert {"away-broker", "away-order-api", "away-query-api", "guard", "away-guard"} <= set(published)
    for name, ports in published.items():
        base = f"127.0.0.1:${{DAYBOOK_AWAY_PORTS:-{274 + AWAY_PORTS // 100}}}" if "away" in name else PORTS
        named = (name, *ROUTED.values()) if name == ROUTER else (name.removeprefix("away-"),)
        if named == ("link",):
            named = tuple(instances("link", CLUSTER))  # one for each broker of a cluster
        assert [port.rpartition(":")[0] for port in ports] == [f"{base}{OFFSETS[own]:02}" for own in named]


def test_the_router_knows_each_api_of_both_sites_and_listens_where_its_ports_lead() -> None:
    router = services("sites.yml")[ROUTER]
    environment = {name: msgspec.json.decode(text) for name, text in router["environment"].items()}
    assert list(environment["DAYBOOK_ROUTER_SITES"]) == ["home", "away"]
    routes = environment["DAYBOOK_ROUTER_ROUTES"]
    assert list(routes) == list(ROUTED)
    inside = [int(port.rpartition(":")[2]) for port in router["ports"]]
    assert inside == [8090, *(route["port"] for route in routes.values())]
    for api, route in routes.items():
        assert route["targets"] == {"home": f"{api}:8080", "away": f"away-{api}:8080"}
        assert route.get("reads", False) == (api == "query-api")
    # where `Location` leads is where the router serves the query API
    away = services("sites.yml")["away-order-api"]["environment"]["DAYBOOK_QUERY_URL"]
    assert away == f"http://{PORTS}{OFFSETS[ROUTED['query-api']]}"


def test_every_process_answers_to_its_own_name() -> None:
    hosts = services("process.yml")["process"]["environment"]["DAYBOOK_ALLOWED_HOSTS"]
    assert {"127.0.0.1", "localhost"} < (
        allowed := set(hosts.removeprefix("${DAYBOOK_ALLOWED_HOSTS:-")[:-1].split(","))
    )
    processes = {
        name
        for file in ("shop.yml", "sites.yml")
        for name, service in services(file).items()
        if service.get("extends") == {"file": "process.yml", "service": "process"}
    }
    assert {f"{service.name}" for row in SERVICES for service in row} < processes < allowed


def test_apis_verify_tokens_of_the_stacks_issuer_unless_another_is_named() -> None:
    environment = services("process.yml")["process"]["environment"]
    for name, value in TokenIssuer(Path("identity"), RUN_SECRETS).settings().items():
        assert environment[name] in (f"${{{name}-{value}}}", f"${{{name}:-{value}}}")


def test_a_write_api_knows_the_same_api_at_the_other_site() -> None:
    home, away = services("shop.yml"), services("sites.yml")
    theirs = f"127.0.0.1:${{DAYBOOK_AWAY_PORTS:-{274 + AWAY_PORTS // 100}}}"
    for name in ("order-api", "inventory-api"):
        port = f"{OFFSETS[name]:02}"
        assert home[name]["environment"]["DAYBOOK_PEER_URL"] == f"http://{theirs}{port}"
        assert away[f"away-{name}"]["environment"]["DAYBOOK_PEER_URL"] == f"http://{PORTS}{port}"


def test_write_apis_and_workers_reach_the_other_site_by_the_link_that_a_drill_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMPOSE_PROFILES", raising=False)
    # one variable for all, also for whoever starts the shop with `docker compose` alone; empty with one site
    of_home = services("process.yml")["process"]["environment"]["DAYBOOK_PEER_KAFKA"]
    assert of_home == f"${{DAYBOOK_HOME_PEER:+{address('${DAYBOOK_HOME_PEER:-}')}}}"
    for name in ("order-api", "inventory-api", "order-worker", "inventory-worker"):
        home, away = services("shop.yml")[name], services("sites.yml")[f"away-{name}"]
        assert home["extends"] == {"file": "process.yml", "service": "process"}
        assert "DAYBOOK_PEER_KAFKA" not in home.get("environment", {})
        assert away["environment"]["DAYBOOK_PEER_KAFKA"] == address("${DAYBOOK_HOME_LINK:-link:9095}")
    settings = StackSettings(home=tmp_path, stack="compose")
    assert compose_environment(settings)["DAYBOOK_HOME_PEER"] == ""
    keep_two_sites(settings)
    assert compose_environment(settings)["DAYBOOK_HOME_PEER"] == "away-link:9095"
    kept_cluster_id(tmp_path)
    assert (
        compose_environment(settings)["DAYBOOK_HOME_PEER"] == "away-link:9095,away-link:9096,away-link:9097"
    )


def test_a_further_controller_can_never_be_one_of_the_first_voters() -> None:
    """Two empty voters would be a majority beside the one that has the log."""
    shared = services("node.yml")["controller"]
    assert shared["command"][-1] == "/usr/local/bin/start-controller"
    assert shared["environment"]["KAFKA_CONTROLLER_QUORUM_AUTO_JOIN_ENABLE"] == "true"
    voters = "KAFKA_CONTROLLER_QUORUM_VOTERS"
    assert not any(voters in node.get("environment", {}) for node in services("node.yml").values())
    script = (ROOT / "infra" / "stack" / "compose" / "start-controller").read_text()
    formats = [line for line in script.splitlines() if "StorageTool format" in line]
    assert [line for line in formats if "--no-initial-controllers" in line] == formats != []
    for file, prefix in (("cluster.yml", ""), ("away-cluster.yml", "away-")):
        cluster = services(file)
        first_voters = {name for name, node in cluster.items() if voters in node.get("environment", {})}
        assert first_voters == {f"{prefix}controller"}
        for name in CONTROLLERS:
            assert cluster[f"{prefix}{name}"]["hostname"] == f"{prefix}{name}"  # what Kafka tells the others


def filled(name: str, settings: StackSettings) -> list[str]:
    """The three addresses of this variable, as `--brokers 3` sets it."""
    return compose_environment(settings)[name].split(",")


def test_each_node_of_a_cluster_is_where_both_sites_and_this_machine_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMPOSE_PROFILES", raising=False)
    monkeypatch.delenv("COMPOSE_ENV_FILES", raising=False)
    settings = StackSettings(home=tmp_path, stack="compose")
    kept_cluster_id(tmp_path)
    assert compose_environment(settings)["COMPOSE_PROFILES"] == "cluster"
    assert "DAYBOOK_AWAY_BROKERS" not in compose_environment(settings)
    keep_two_sites(settings)
    assert compose_environment(settings)["COMPOSE_PROFILES"] == "away-cluster,cluster,sites"
    for prefix, variable, file in (("", "DAYBOOK_", "cluster"), ("away-", "DAYBOOK_AWAY_", "away-cluster")):
        nodes, link = services(f"{file}.yml"), services("sites.yml")[f"{prefix}link"]
        assert list(nodes) == [f"{prefix}{name}" for name in (*CONTROLLERS, *BROKERS, "controller-proof")]
        assert filled(f"{variable}BROKERS", settings) == [f"{prefix}{name}:9092" for name in BROKERS]
        assert filled(f"{variable}INTERNAL", settings) == [f"{prefix}{name}:9091" for name in BROKERS]
        assert {compose_environment(settings)[f"{variable}LONE_BROKER"]} == {"0"}
        ports = PORTS if not prefix else f"127.0.0.1:${{DAYBOOK_AWAY_PORTS:-{274 + AWAY_PORTS // 100}}}"
        ways = dict(way.split("=") for way in link["command"][3:])
        for number, name in enumerate(BROKERS):
            node, published = nodes[f"{prefix}{name}"], [OFFSETS[own[number]] for own in (HOSTS, LINKS)]
            host, linked = published if number or prefix else ("${DAYBOOK_BROKER_1:-87}", published[1])
            advertised = node["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
            assert advertised == [
                f"CLIENTS://{prefix}{name}:9092",
                f"HOST://{ports}{host}",
                f"PEER://{prefix}link:{9095 + number}",
                f"PEERHOST://{ports}{linked}",
                f"INTERNAL://{prefix}{name}:9091",
            ]
            assert node["ports"] == [f"{ports}{host}:19092"]
            assert link["ports"][number] == f"{ports}{linked}:{19095 + number}"
            first = f"{prefix}${{{variable}FIRST_BROKER:-broker}}"
            behind = f"{prefix}{name}" if number else first
            assert ways[str(9095 + number)] == f"{behind}:9094"
            assert ways[str(19095 + number)] == f"{behind}:19094"
    assert compose_environment(settings)["DAYBOOK_BROKER_1"] == f"{OFFSETS['broker']}"


def test_profiles_are_those_of_the_environment_or_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = StackSettings(home=tmp_path, stack="compose")
    monkeypatch.delenv("COMPOSE_PROFILES", raising=False)
    monkeypatch.setenv("COMPOSE_ENV_FILES", "infra/compose/cluster.env")
    assert compose_environment(settings)["COMPOSE_PROFILES"] == "cluster"
    keep_two_sites(settings)
    assert compose_environment(settings)["COMPOSE_PROFILES"] == "cluster,sites"
    (tmp_path / "own.env").write_text('export COMPOSE_PROFILES="connect,registry" # two\n')
    monkeypatch.setenv("COMPOSE_ENV_FILES", f"infra/compose/cluster.env,{tmp_path / 'own.env'}")
    assert compose_environment(settings)["COMPOSE_PROFILES"] == "connect,registry,sites"
    monkeypatch.setenv("COMPOSE_PROFILES", "registry")
    assert compose_environment(settings)["COMPOSE_PROFILES"] == "registry,sites"


def test_no_broker_is_started_and_no_disk_is_filled_without_room() -> None:
    """On a full disk a broker empties its logs: the engine's own restart waits, as the supervisor's does."""
    assert f"free * 1024 >= {START_BYTES}" in (ROOT / "infra" / "stack" / "compose" / "with-room").read_text()
    for file, name in (("shop.yml", "broker"), ("node.yml", "node")):
        broker = services(file)[name]
        assert broker["command"][:2] == ["with-room", broker["environment"]["KAFKA_LOG_DIRS"]]
        assert "../stack/compose/with-room:/usr/local/bin/with-room:ro" in broker["volumes"]
    for file, site in (("shop.yml", ""), ("sites.yml", "away-")):
        stores = {f"{site}{store}:/disks/{store}:ro" for store in STORES}
        assert stores < {*services(file)[f"{site}storage"]["volumes"]}


def test_further_containers_differ_from_the_first_by_number_and_port(tmp_path: Path) -> None:
    write_further(tmp_path, {"order-worker": 3, "query-api": 1})
    further = yaml.load(further_file(tmp_path).read_text(), Compose)["services"]
    assert list(further) == instances("order-worker", 3)[1:]
    for number, (name, service) in enumerate(further.items(), start=1):
        assert service["extends"] == {"file": str(COMPOSE / "shop.yml"), "service": "order-worker"}
        assert service["environment"]["DAYBOOK_SLOT"] == service["environment"]["DAYBOOK_REPLICA"] == number
        assert name in service["environment"]["DAYBOOK_ALLOWED_HOSTS"].split(",")
        assert service["ports"] == [f"{PORTS}{OFFSETS[name]:02}:8090"]
    write_further(tmp_path, {})
    assert yaml.load(further_file(tmp_path).read_text(), Compose) == {"services": {}}


def test_the_cluster_keeps_what_the_embedded_one_keeps() -> None:
    assert DURABLE.items() <= properties(ROOT / "infra" / "kafka" / "replicated.properties").items()
    for file in ("cluster.yml", "away-cluster.yml"):
        racks = [node.get("environment", {}).get("KAFKA_BROKER_RACK") for node in services(file).values()]
        assert [rack for rack in racks if rack] == ["rack-1", "rack-2", "rack-3"]


def test_prometheus_asks_every_process() -> None:
    scraped = yaml.safe_load((ROOT / "infra" / "monitoring" / "prometheus.yml").read_text())
    (targets,) = scraped["scrape_configs"][0]["static_configs"]
    assert set(targets["targets"]) == {
        "storage:8090",
        *(f"{service.name}:8090" for row in SERVICES for service in row),
    }
    (guards,) = (job for job in scraped["scrape_configs"] if job["job_name"] == "guards")
    assert guards["static_configs"] == [{"targets": ["guard:8090", "away-guard:8090"]}]
    assert {"guard", "away-guard"} <= set(services("sites.yml"))
    mounted = services("monitoring.yml")["prometheus"]["volumes"]
    for file in ("prometheus.yml", *scraped["rule_files"]):
        assert f"../monitoring/{file}:/etc/prometheus/{file}:ro" in mounted
