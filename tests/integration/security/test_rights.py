"""What each principal may do on a secured broker: every cell of `rights.txt`, tried with real requests.

`rights.txt` is reviewed by hand. Its letters: P produces, F fetches, S sees settings, X deletes the topic; J joins a
group and writes its positions; W writes under a transactional id. Who has a letter sees the topic's
ends. Nobody may do what no letter stands for.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from contracts.kafka_address import sibling
from infra.base.ports import HOST, listening
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.log.quotas import apply_quotas
from infra.log.rights import Right, principals, quotas
from infra.log.topics import create_topics, ensure_site
from infra.stack.embedded.kafka import site_nodes
from infra.stack.security import INTERNAL, apply_security, prepare_identities
from services.kernel.log import clients
from services.kernel.log.clients import Connection
from tests.integration.security.attempts import (
    PATIENT,
    REFUSED,
    SECONDS,
    TABLES,
    Attempts,
    more_topics,
    wrong_cells,
)
from tests.ports import free_base
from tests.servers import NodeServer

pytestmark = pytest.mark.long

NOBODY = "nobody"
# Kafka's simplest request (ApiVersions, version 0), in clear text.
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
TLS_ALERT = b"\x15"
PRINCIPALS = TABLES["topic"].principals


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> StackSettings:
    return StackSettings(home=tmp_path_factory.mktemp("secured"), port_base=free_base())


@pytest.fixture(scope="module")
def broker(settings: StackSettings) -> Iterator[str]:
    """The address of a secured broker for admin, with every topic, and a user without rights."""
    prepare_identities(settings, [NOBODY])
    ((node,),) = site_nodes(settings, linked=False)
    server = NodeServer(node)
    server.start()
    try:
        apply_security(settings, [NOBODY])
        create_topics(settings.kafka)
        ensure_site(settings.kafka)
        admin = clients.admin(settings.kafka)
        for created in admin.create_topics(more_topics()).values():
            created.result()
        yield settings.kafka
    finally:
        server.kill()


def test_the_reviewed_table_names_every_principal_and_topic(broker: str) -> None:
    topics = {
        name for name in clients.admin(broker).list_topics(timeout=10).topics if not name.startswith("__")
    }
    assert {*TABLES["topic"].resources} == topics
    assert sorted(PRINCIPALS) == sorted([*principals(), NOBODY])


def test_every_cell(broker: str) -> None:
    assert wrong_cells(broker) == {}


def test_a_right_that_somebody_added_goes_at_the_next_start(broker: str, settings: StackSettings) -> None:
    nobody = Attempts(NOBODY, sibling(broker, NOBODY))
    added = Right(NOBODY, "topic", "order.events", "write").binding()
    admin = clients.admin(broker)
    for created in admin.create_acls([added]).values():
        created.result(SECONDS)
    wait_until(lambda: nobody.produce(["order.events"]), "the broker has the right", SECONDS)
    assert apply_security(settings, [NOBODY]) == (0, 1)
    wait_until(lambda: not nobody.produce(["order.events"])["order.events"], "the right is gone", SECONDS)


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_who_is_refused(broker: str, change: dict[str, str]) -> None:
    """The same client with the right options is served; see the test of the cells."""
    options = {name: value for name, value in Connection(broker).librdkafka().items() if name not in change}
    kept = {name: value for name, value in change.items() if value}
    with pytest.raises(KafkaException):
        AdminClient(options | kept).list_topics(timeout=3)


@pytest.mark.parametrize("name", ["broker", "internal", "controller"])
def test_every_listener_takes_the_newest_tls_alone(broker: str, settings: StackSettings, name: str) -> None:
    at, identity = (HOST, settings.port(name)), Connection(broker).identity
    assert identity is not None
    context = ssl.create_default_context(cadata=identity.authority)
    with socket.create_connection(at) as plain, context.wrap_socket(plain, server_hostname=HOST) as tls:
        assert tls.version() == "TLSv1.3"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(at) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(plain, server_hostname=HOST)
    with socket.create_connection(at) as plain:
        plain.sendall(API_VERSIONS)
        assert plain.recv(1) in (b"", TLS_ALERT)


def test_brokers_take_nobody_without_a_certificate(broker: str, settings: StackSettings) -> None:
    assert broker
    internal = settings.kafka_as("broker", INTERNAL)
    assert clients.admin(internal, PATIENT).list_topics(timeout=10).topics
    options = Connection(internal).librdkafka()
    for name in ("ssl.certificate.pem", "ssl.key.pem"):
        del options[name]
    with pytest.raises(KafkaException):
        AdminClient(options).list_topics(timeout=3)


def test_a_broker_listens_on_no_other_port(broker: str, settings: StackSettings) -> None:
    assert broker
    first = settings.port_base
    taken = {port for port in range(first, first + 100) if listening(port)}
    assert taken == {settings.port(name) for name in ("broker", "internal", "controller")}


def test_the_brokers_have_the_quotas_of_the_catalogue(broker: str) -> None:
    expected = quotas()
    assert expected["order-api"] == {"producer_byte_rate": 32_000_000, "consumer_byte_rate": 64_000_000}
    assert apply_quotas(broker, expected) == 0  # the start of the site has set them


def test_a_quota_that_somebody_changed_comes_back_and_another_goes(broker: str) -> None:
    changed = {**quotas(), "order-api": {"producer_byte_rate": 1.0}, NOBODY: {"consumer_byte_rate": 1.0}}
    assert apply_quotas(broker, changed) == 2
    assert apply_quotas(broker, quotas()) == 2
    assert apply_quotas(broker, quotas()) == 0


def test_a_user_who_is_too_fast_waits_and_nothing_is_refused(broker: str) -> None:
    apply_quotas(broker, {**quotas(), "order-api": {"producer_byte_rate": 1000.0}})
    throttled: list[float] = []
    greedy = clients.writer(
        sibling(broker, "order-api"),
        PATIENT | {"throttle_cb": lambda event: throttled.append(event.throttle_time)},
    )
    refused: list[object] = []
    try:
        for _ in range(10):
            greedy.produce(
                "order.commands", bytes(10_000), b"key", on_delivery=lambda error, _: refused.append(error)
            )
            greedy.flush(1)
        assert max(throttled) > 1.0
        assert {*refused} <= {None}
    finally:
        apply_quotas(broker, quotas())
