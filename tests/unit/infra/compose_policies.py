"""What every service of the rendered compose files must keep to. A policy yields the reasons why one does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from contracts.kafka_address import SCHEME
from infra.base.ports import HOST
from infra.stack.compose.further import HTTP_PORT

Config: TypeAlias = Mapping[str, Any]
"""What `docker compose config --format json` prints."""
Policy: TypeAlias = Callable[[Config], Iterator[str]]

# Who needs more than nothing, and why: the first gives files away, the entry point of the second changes its user.
CAPABILITIES = {
    "secrets": {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
    "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"},
}
INTERNAL = {"log", "data"}
TWO_LISTENERS = {"order-api", "inventory-api", "query-api", "registry"}
# Networks on which a store alone is, so that this machine can reach it.
OF_STORES = {"log-published": "broker", "data-published": "postgres"}
WITH_DATA = {"postgres", "migrations", "projection", "query-api", "guard", "office", "connect"}
# They have secrets, but none for the log.
WITHOUT_LOG = {"registry", "postgres", "migrations", "office"}
AWAY, CONTROLLERS = "away-", ("controller", "controller-2", "controller-3")
NODES = ("broker-1", "broker-2", "broker-3", *CONTROLLERS)
# The folder of a container that is not called like it.
FOLDERS = {f"{site}{node}": "node" for site in ("", AWAY) for node in NODES}
FOLDERS |= {"home-mirror-settings": "mirror-settings"}
SHARED_FOLDERS = {"projection", "query-api", "guard", "migrations"}  # not by both sites: a database each
# A port without a password. With KAFKA_JMX_PORT the image opens one more, which takes everybody.
JMX_OPEN = re.compile(r"^(?=.*jmxremote\.port)(?!.*jmxremote\.authenticate=true)")
MOUNTS = {"/run/secrets", "/mnt/shared/config"}


def services(config: Config) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Each service's name, its kind (the same at both sites), and its settings."""
    for name, service in config["services"].items():
        kind = name.removeprefix(AWAY)
        yield name, "broker" if kind in NODES[:3] else kind, service


def confined(config: Config) -> Iterator[str]:
    """No capabilities, no way to get more, and nothing of the host."""
    for name, kind, service in services(config):
        if service.get("cap_drop") != ["ALL"] or set(service.get("cap_add", ())) - CAPABILITIES.get(
            kind, set()
        ):
            yield f"{name} has capabilities"
        if "no-new-privileges:true" not in service.get("security_opt", ()) or service.get("privileged"):
            yield f"{name} may gain rights"
        if service.get("user", "").startswith("0") and kind != "secrets":
            yield f"{name} runs as root"
        if any(service.get(space) for space in ("pid", "ipc", "userns_mode", "devices")):
            yield f"{name} shares something with the host"
        if any(
            "docker.sock" in volume["source"] for volume in service.get("volumes", ()) if "source" in volume
        ):
            yield f"{name} may command the engine"


def read_only(config: Config) -> Iterator[str]:
    for name, _, service in services(config):
        if service.get("read_only") is not True:
            yield f"{name} can write to its root"


def limited(config: Config) -> Iterator[str]:
    """One container cannot take the machine from the others."""
    for name, _, service in services(config):
        for limit in ("mem_limit", "pids_limit"):
            if not int(service.get(limit, 0)) > 0:
                yield f"{name} has no {limit}"


def published(config: Config) -> Iterator[str]:
    """On the loopback interface alone; of an API, only what its clients call."""
    for name, kind, service in services(config):
        for port in service.get("ports", ()):
            if kind in TWO_LISTENERS and port.get("target") != HTTP_PORT:
                yield f"{name} publishes {port.get('target')}, where its health and metrics are"
            if port.get("host_ip") != HOST:
                yield f"{name} publishes {port.get('published')} at {port.get('host_ip', 'every address')}"


# Published ports that authenticate their clients: Kafka and PostgreSQL, themselves or behind a link, the APIs, and the
# gate before the tools of profiles.
STORES = {"broker", "postgres", "link"}
APIS = {"order-api", "inventory-api", "query-api", "registry"}
GATE = "gate"
# Those that do not: health and metrics, and what passes requests on to the APIs.
OPEN = {"order-worker", "inventory-worker", "guard", "router"}


def authenticated(config: Config) -> Iterator[str]:
    """No published port takes everybody, unless it is listed above."""
    for name, kind, service in services(config):
        if kind in APIS and not (service["environment"].get("DAYBOOK_TOKEN_KEYS") and has_secrets(service)):
            yield f"{name} verifies no tokens"
        if kind == GATE and not has_secrets(service):
            yield f"{name} has no password"
        if service.get("ports") and kind not in STORES | APIS | OPEN | {GATE}:
            yield f"{name} publishes a port that takes everybody"


TLS = {
    "-cssl=on",
    "-cssl_cert_file=/run/secrets/server.pem",
    "-cssl_key_file=/run/secrets/server.pem",
    "-cssl_min_protocol_version=TLSv1.3",
    "-chba_file=/etc/postgresql/pg_hba.conf",
}


def encrypted(config: Config) -> Iterator[str]:
    """PostgreSQL takes nobody from the network in clear text, or without a password."""
    for name, _, service in services(config):
        environment = service.get("environment", {})
        if not any(variable.startswith("POSTGRES_") for variable in environment):
            continue
        if missing := TLS - {*service.get("command", ())}:
            yield f"{name} lacks {', '.join(sorted(missing))}"
        if "POSTGRES_HOST_AUTH_METHOD" in environment:
            yield f"{name} has another way to authenticate"
        files = [volume for volume in service.get("volumes", ()) if volume["target"].endswith("/pg_hba.conf")]
        if not files:
            yield f"{name} lets the image decide who may connect"
        for file in files:
            for line in open_lines(Path(file["source"]).read_text("utf-8")):
                yield f"{name} lets in: {line}"


def open_lines(text: str) -> list[str]:
    """The lines of a `pg_hba.conf` that let somebody in without a password, or from the network without TLS."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    closed = [line[0] in ("local", "hostssl") and line[-1] == "scram-sha-256" for line in lines]
    return [" ".join(line) for line, is_closed in zip(lines, closed, strict=True) if not is_closed]


def separated(config: Config) -> Iterator[str]:
    """The log and the database are on networks without a way out, which only those share who need them."""
    for name in INTERNAL:
        if config["networks"][name].get("internal") is not True:
            yield f"network {name} leads out"
    for name, kind, service in services(config):
        if service.get("network_mode") == "none":
            continue
        networks = set(service.get("networks", ("default",)))
        if unknown := networks - {"edge", *INTERNAL, *OF_STORES}:
            yield f"{name} is on network {', '.join(sorted(unknown))}"
        if "data" in networks and kind not in WITH_DATA:
            yield f"{name} is on network data"
        has_user = has_secrets(service) and kind not in WITHOUT_LOG
        if "log" in networks and not has_user and kind not in LISTENS:
            yield f"{name} is on network log"
        for network, store in OF_STORES.items():
            if network in networks and kind != store:
                yield f"{name} is on network {network}"
        if kind in OF_STORES.values() and "edge" in networks:
            yield f"{name} is on network edge"
        if service.get("ports") and networks <= INTERNAL:
            yield f"{name} publishes ports that nobody can reach"


# They read no log, but are asked by who does, or ask them.
LISTENS = {
    "broker", *CONTROLLERS, "controller-proof", "link", "mirror", "home-mirror", "broker-metrics", "prometheus",
    "spark-worker",
}  # fmt: skip


def has_secrets(service: Mapping[str, Any]) -> bool:
    return any(volume["target"] in MOUNTS for volume in service.get("volumes", ()))


def addresses(config: Config) -> Iterator[str]:
    """Nobody talks to Kafka in clear text, and nobody without a name."""
    for name, _, service in services(config):
        environment = service.get("environment", {})
        for variable, value in environment.items():
            if variable.endswith("_KAFKA") and value and not value.startswith(SCHEME):
                yield f"{name}: {variable} is an address in clear text"
        if "PLAINTEXT" in environment.get("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", ""):
            yield f"{name} has a listener in clear text"
        if "KAFKA_JMX_PORT" in environment or JMX_OPEN.search(environment.get("KAFKA_JMX_OPTS", "")):
            yield f"{name}: its JMX takes everybody"


def own_secrets(config: Config) -> Iterator[str]:
    """A container sees its own folder of secrets, and no secret is a variable."""
    for name, _, service in services(config):
        for volume in service.get("volumes", ()):
            folder = PurePosixPath(volume.get("source", ""))
            if volume["target"] in MOUNTS:
                if folder.parent.name != "containers" or folder.name != _folder(name):
                    yield f"{name} gets the secrets of {folder.name}"
                if not volume.get("read_only"):
                    yield f"{name} may change its secrets"
            elif "containers" in folder.parts[-2:] or (volume["target"] == "/shop" and name != "secrets"):
                yield f"{name} sees others' secrets"
        for variable, value in service.get("environment", {}).items():
            if "://" in str(value) and "@" in str(value):
                yield f"{name}: {variable} contains a password"
            if variable.endswith(("PASSWORD", "SECRET", "HASH_KEY", "DATABASE_URL")):
                yield f"{name}: {variable} is a secret"


def _folder(name: str) -> str:
    kind = name.removeprefix(AWAY)
    return FOLDERS.get(name, name if kind in SHARED_FOLDERS else kind)


POLICIES: tuple[Policy, ...] = (
    confined,
    read_only,
    limited,
    published,
    authenticated,
    encrypted,
    separated,
    addresses,
    own_secrets,
)
