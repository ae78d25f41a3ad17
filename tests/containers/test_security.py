"""Nobody gets into the shop's stores without a name, and no container has another one's secrets."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.base.ports import HOST
from infra.base.settings import ROOT
from infra.identity.authority import Authority
from infra.log.rights import ADMIN, principals
from infra.stack.shop import USER, database_url, principal_of, role_password
from services.kernel.log.clients import Connection, KafkaIdentity
from tests.containers.shop import PROCESSES, STORES, ContainerShop
from tests.integration.security.attempts import REFUSED

pytestmark = pytest.mark.timeout(600)
# Kafka's simplest request (ApiVersions, version 0), in clear text; a response begins with its length and this number.
CORRELATION = b"\x7d\xa4\xb0\x0c"
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0" + CORRELATION + b"\xff\xff"
LISTENERS = {9091, 9092, 9093, 9094, 19092, 19094}
CERTIFIED = (9091, 9093)
JMX_HELLO = b"JRMI\0\2K"
JMX, DATABASE, API, HEALTH = 9999, 5432, 8080, 8090
SECONDS = 5.0
LISTENING = "0A"  # the state in /proc/net/tcp
ROLES = ("daybook", "owner", "projection", "query", "guard", "auditor")


def inspected(shop: ContainerShop, service: str) -> Mapping[str, Any]:
    (state,) = json.loads(shop.docker("inspect", shop.container(service)))
    container: Mapping[str, Any] = state
    return container


def listening(shop: ContainerShop, service: str) -> set[int]:
    """The ports on which a container listens for others than itself."""
    table = shop.docker("exec", shop.container(service), "cat", "/proc/net/tcp", "/proc/net/tcp6")
    rows = [row.split() for row in table.splitlines()]
    own = [row[1] for row in rows if len(row) > 3 and row[3] == LISTENING]
    return {int(port, 16) for address, _, port in (at.partition(":") for at in own) if not int(address, 16)}


def ways(shop: ContainerShop, service: str) -> Iterator[tuple[str, int]]:
    """Every address and port under which a container can be reached, from this machine and by other containers."""
    state = inspected(shop, service)["NetworkSettings"]
    for network in state["Networks"].values():
        yield from ((network["IPAddress"], port) for port in listening(shop, service))
    for published in state["Ports"].values():
        yield from ((at["HostIp"], int(at["HostPort"])) for at in published or ())


def response(at: tuple[str, int], request: bytes) -> bytes:
    """What comes back, until the other side closes the connection or is silent."""
    received = b""
    try:
        with socket.create_connection(at, SECONDS) as plain:
            plain.settimeout(SECONDS)
            plain.sendall(request)
            while len(received) < 1024 and (part := plain.recv(1024)):
                received += part
    except (TimeoutError, ConnectionError):
        pass
    return received


def test_containers_listen_where_they_should_and_nowhere_else(shop: ContainerShop) -> None:
    expected = {"broker": {*LISTENERS, JMX}, "postgres": {DATABASE}}
    expected |= {
        service: {API, HEALTH} for service in ("order-api", "inventory-api", "query-api", "registry")
    }
    for service in (*STORES, *PROCESSES):
        ports = listening(shop, service)
        assert ports >= expected.get(service, {HEALTH}), service
        for port in ports - expected.get(service, {HEALTH}):
            # Java's own, for tools in the same container: it hangs up on everybody else
            assert service == "broker" and response((address(shop), port), JMX_HELLO) == b"", (service, port)


def test_no_port_of_any_container_speaks_kafka_in_clear_text(shop: ContainerShop) -> None:
    probed = {at for service in (*STORES, *PROCESSES) for at in ways(shop, service)}
    assert len(probed) >= len(LISTENERS) + len(PROCESSES)
    assert {at for at in probed if CORRELATION in response(at, API_VERSIONS)[:8]} == set()


def test_what_is_published_is_of_this_machine_alone(shop: ContainerShop) -> None:
    for service in (*STORES, *PROCESSES):
        for ports in inspected(shop, service)["NetworkSettings"]["Ports"].values():
            assert {at["HostIp"] for at in ports or ()} <= {HOST}, service


def test_every_listener_of_a_broker_takes_the_newest_tls_alone(shop: ContainerShop) -> None:
    context, own = trusting(shop), address(shop)
    for port in LISTENERS:
        with connected(own, port) as plain, context.wrap_socket(plain) as tls:
            assert tls.version() == "TLSv1.3"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    for port in LISTENERS:
        with connected(own, port) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain)


def test_brokers_take_nobody_without_a_certificate(shop: ContainerShop) -> None:
    """With TLS 1.3 the refusal comes after the client's side of the handshake."""
    for port in CERTIFIED:
        with connected(address(shop), port) as plain, trusting(shop).wrap_socket(plain) as tls:
            tls.settimeout(SECONDS)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                assert tls.recv(1) != b"", "closed without a word"


def test_brokers_do_not_take_postgres_for_one_of_them(shop: ContainerShop) -> None:
    context = trusting(shop)
    context.load_cert_chain(shop.settings.kafka_identities / "postgres.pem")
    for port in CERTIFIED:
        with connected(address(shop), port) as plain, context.wrap_socket(plain) as tls:
            tls.settimeout(SECONDS)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                assert tls.recv(1) != b"", "closed without a word"


def test_postgres_takes_nobody_in_clear_text(shop: ContainerShop) -> None:
    """Also with a password that is right."""
    for role in ROLES:
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no encryption"):
            rows(without_tls(shop, role), ssl=False)


def test_postgres_takes_the_newest_tls_alone(shop: ContainerShop) -> None:
    context = ssl.create_default_context(cafile=shop.settings.kafka_identities / "authority.pem")
    assert rows(without_tls(shop), ssl=context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        rows(without_tls(shop), ssl=context)


def test_postgres_proves_its_name(shop: ContainerShop, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    stranger.prepare([])
    own = str(shop.settings.kafka_identities.absolute()).replace("/", "%2F")
    elsewhere = database_url(shop.settings).replace(own, str(tmp_path).replace("/", "%2F"))
    assert elsewhere != database_url(shop.settings)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"signature|issuer|self-signed"):
        rows(elsewhere)
    networks = inspected(shop, "postgres")["NetworkSettings"]["Networks"].values()
    at = f"{HOST}:{shop.settings.port('postgres')}"
    unnamed = database_url(shop.settings).replace(at, f"{next(iter(networks))['IPAddress']}:{DATABASE}")
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        rows(unnamed)


def test_every_session_of_the_shop_is_encrypted(shop: ContainerShop) -> None:
    query = (
        "SELECT usename, version FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
        " WHERE backend_type = 'client backend'"
    )
    sessions = rows(database_url(shop.settings, USER), query)
    assert {"projection", "query"} <= {row["usename"] for row in sessions}
    assert {row["version"] for row in sessions} == {"TLSv1.3"}


def test_the_address_of_the_database_is_for_shells_and_for_tools(shop: ContainerShop) -> None:
    """`eval "$(./daybook --stack compose env)"`, as the documents have it."""
    shown = 'eval "$(./daybook --stack compose env)"; printf %s "$DAYBOOK_DATABASE_URL"'
    done = subprocess.run(
        ["bash", "-c", shown], cwd=ROOT, env=shop.environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == database_url(shop.settings)


def without_tls(shop: ContainerShop, role: str = "auditor") -> str:
    return database_url(shop.settings, role).partition("?")[0]


def rows(url: str, query: str = "SELECT 1", **options: Any) -> list[asyncpg.Record]:
    async def fetch() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(url, timeout=30, **options)
        try:
            return list(await connection.fetch(query))
        finally:
            await connection.close(timeout=30)

    return asyncio.run(fetch())


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_who_is_refused_at_the_published_port(shop: ContainerShop, change: dict[str, str]) -> None:
    options = Connection(shop.settings.kafka).librdkafka()
    assert AdminClient(options).list_topics(timeout=10).topics
    changed = {name: value for name, value in (options | change).items() if value != ""}
    with pytest.raises(KafkaException):
        AdminClient(changed).list_topics(timeout=3)


def test_a_container_has_its_own_secrets_and_no_other(shop: ContainerShop) -> None:
    """In its environment, its command, its health check, and in the files that are mounted."""
    all_secrets = secrets(shop)
    for service in (*STORES, *PROCESSES):
        state = inspected(shop, service)
        described = json.dumps([state["Config"], state["Args"], state["Path"]])
        assert not [name for name, secret in all_secrets.items() if secret in described], service
        files = [file for folder in shop_folders(shop, state) for file in folder.rglob("*") if file.is_file()]
        text = "".join(file.read_text() for file in files)
        assert {name for name, secret in all_secrets.items() if secret in text} == expected_secrets(service)


def expected_secrets(service: str) -> set[str]:
    match service:
        case "postgres":
            return {"database daybook"}
        case "broker" | "registry":  # a broker has a certificate
            return set()
        case "projection" | "query-api":
            return {f"kafka {principal_of(service)}", f"database {principal_of(service)}"}
        case _:
            return {f"kafka {service}"}


def secrets(shop: ContainerShop) -> dict[str, str]:
    """Every password for Kafka and for the database."""
    files = {user: shop.settings.kafka_identities / f"{user}.json" for user in (ADMIN, *principals())}
    users = {
        f"kafka {user}": msgspec.json.decode(file.read_bytes(), type=KafkaIdentity).password
        for user, file in files.items()
    }
    return users | {f"database {role}": role_password(shop.settings, role) for role in ROLES}


def shop_folders(shop: ContainerShop, state: Mapping[str, Any]) -> list[Path]:
    """What a container sees of the shop's folder."""
    sources = [Path(mount["Source"]) for mount in state["Mounts"] if mount["Type"] == "bind"]
    return [source for source in sources if source.is_relative_to(shop.settings.home)]


def address(shop: ContainerShop) -> str:
    networks: Mapping[str, Mapping[str, str]] = inspected(shop, "broker")["NetworkSettings"]["Networks"]
    return next(network["IPAddress"] for network in networks.values())


def connected(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), SECONDS)


def trusting(shop: ContainerShop) -> ssl.SSLContext:
    """By the authority alone: a container's address is not in the certificate, its names are."""
    identity = Connection(shop.settings.kafka).identity
    assert identity is not None
    context = ssl.create_default_context(cadata=identity.authority)
    context.check_hostname = False
    return context
