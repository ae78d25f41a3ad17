"""The compose files of all profiles, as Docker renders them, against every policy; and each policy against a fault."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from infra.base.settings import ROOT
from tests.unit.infra.compose_policies import (
    POLICIES,
    Policy,
    addresses,
    authenticated,
    confined,
    encrypted,
    limited,
    open_lines,
    own_secrets,
    published,
    read_only,
    separated,
)

COMPOSE = ("docker", "compose")

Fault = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """Without an engine: compose renders by itself."""
    if (
        shutil.which("docker") is None
        or subprocess.run([*COMPOSE, "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no docker with its plugin compose on the path")
    command = [*COMPOSE, "--profile", "*", "config", "--format", "json"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("DAYBOOK_", "COMPOSE_"))}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    rendered: dict[str, Any] = json.loads(done.stdout)
    return rendered


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_every_service_keeps_to_it(config: dict[str, Any], policy: Policy) -> None:
    assert list(policy(config)) == []


def service(name: str, **changes: Any) -> Fault:
    return lambda config: config["services"][name].update(changes)


def variable(name: str, **changes: str) -> Fault:
    return lambda config: config["services"][name]["environment"].update(changes)


def mounted(name: str, source: str, target: str) -> Fault:
    volume = {"type": "bind", "source": source, "target": target, "read_only": True}
    return lambda config: config["services"][name]["volumes"].append(volume)


def lead_out(config: dict[str, Any]) -> None:
    config["networks"]["log"]["internal"] = False


def option(name: str, without: str) -> Fault:
    return lambda config: config["services"][name]["command"].remove(without)


def unmounted(name: str, target: str) -> Fault:
    def fault(config: dict[str, Any]) -> None:
        volumes = config["services"][name]["volumes"]
        volumes[:] = [volume for volume in volumes if volume["target"] != target]

    return fault


FAULTS: dict[str, tuple[Policy, Fault]] = {
    "a capability": (confined, service("order-api", cap_add=["NET_ADMIN"])),
    "capabilities that stay": (confined, service("broker", cap_drop=[])),
    "new privileges": (confined, service("postgres", security_opt=[])),
    "a privileged container": (confined, service("storage", privileged=True)),
    "root": (confined, service("projection", user="0:0")),
    "the host's processes": (confined, service("guard", pid="host")),
    "the engine's socket": (confined, mounted("router", "/var/run/docker.sock", "/var/run/docker.sock")),
    "a root to write to": (read_only, service("broker", read_only=False)),
    "all of the memory": (limited, lambda config: config["services"]["mirror"].pop("mem_limit")),
    "any number of processes": (limited, service("connect", pids_limit=0)),
    "a port for everybody": (published, service("order-api", ports=[{"target": 8080, "published": "27401"}])),
    "an API for everybody": (authenticated, variable("query-api", DAYBOOK_TOKEN_KEYS="")),
    "an API without the issuer's keys": (authenticated, unmounted("registry", "/run/secrets")),
    "tools without a password": (authenticated, unmounted("gate", "/run/secrets")),
    "a tool beside its gate": (
        authenticated,
        service("prometheus", ports=[{"target": 9090, "published": "27490", "host_ip": "127.0.0.1"}]),
    ),
    "another port that takes everybody": (
        authenticated,
        service("storage", ports=[{"target": 8080, "published": "27420", "host_ip": "127.0.0.1"}]),
    ),
    "PostgreSQL in clear text": (encrypted, option("postgres", "-cssl=on")),
    "PostgreSQL with an old TLS": (encrypted, option("away-postgres", "-cssl_min_protocol_version=TLSv1.3")),
    "who may connect by the image": (encrypted, option("postgres", "-chba_file=/etc/postgresql/pg_hba.conf")),
    "no list of who may connect": (encrypted, unmounted("away-postgres", "/etc/postgresql/pg_hba.conf")),
    "PostgreSQL that trusts": (encrypted, variable("postgres", POSTGRES_HOST_AUTH_METHOD="trust")),
    "the metrics of an API": (
        published,
        service("query-api", ports=[{"target": 8090, "published": "27409", "host_ip": "127.0.0.1"}]),
    ),
    "a way out of the log": (separated, lead_out),
    "an API at the database": (separated, service("order-api", networks={"edge": None, "data": None})),
    "the registry at the log": (separated, service("registry", networks={"edge": None, "log": None})),
    "the database at the log": (separated, service("postgres", networks={"data": None, "log": None})),
    "a broker among clients": (separated, service("broker", networks={"edge": None, "log": None})),
    "a network by default": (separated, lambda config: config["services"]["storage"].pop("networks")),
    "a port that leads nowhere": (separated, service("broker", networks={"log": None})),
    "clear text": (addresses, variable("order-worker", DAYBOOK_KAFKA="broker:9092")),
    "a listener in clear text": (
        addresses,
        variable("away-broker", KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="CLIENTS:PLAINTEXT"),
    ),
    "JMX for everybody": (
        addresses,
        variable("broker", KAFKA_JMX_OPTS="-Dcom.sun.management.jmxremote.port=9999"),
    ),
    "the image's own JMX": (addresses, variable("broker", KAFKA_JMX_PORT="9999")),
    "another one's secrets": (
        own_secrets,
        mounted("order-api", "/x/containers/order-worker", "/run/secrets"),
    ),
    "everybody's secrets": (own_secrets, mounted("order-api", "/x-compose/containers", "/all")),
    "the folder of the shop": (own_secrets, mounted("link", "/x-compose", "/shop")),
    "a password as a variable": (
        own_secrets,
        variable("query-api", DAYBOOK_DATABASE_URL="postgresql://q:p@postgres/d"),
    ),
}


@pytest.mark.parametrize(("policy", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_seen(config: dict[str, Any], policy: Policy, fault: Fault) -> None:
    broken = copy.deepcopy(config)
    fault(broken)
    assert list(policy(broken)) != []


@pytest.mark.parametrize(
    "line", ["host all all all scram-sha-256", "hostssl all all all trust", "local all all peer"]
)
def test_a_line_that_lets_somebody_in_is_seen(line: str) -> None:
    assert open_lines(f"# a comment\n\nlocal all all scram-sha-256\n{line}\n") == [line]
