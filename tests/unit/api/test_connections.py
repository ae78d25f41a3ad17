"""The limits of connections: per client, behind a proxy, and when the server is full."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_network

import pytest

from infra.base.ports import HOST
from services.edge.protocol import (
    MAX_BUFFERED_BYTES,
    BoundedProtocol,
    Connections,
    client_of,
    forwarded_client,
)
from services.edge.settings import EdgeSettings
from tests.unit.api.servers import Answering, code, connected, everything, exchange, post, served, status

MOST = 3
PROXY, CLIENT, OTHER = "127.0.0.9", "127.0.0.2", "127.0.0.3"
TRUSTED = (ip_network("10.0.0.0/8"), ip_network("127.0.0.9/32"), ip_network("fd00::/8"))


@pytest.fixture
def answering() -> Answering:
    return Answering()


@pytest.fixture
def port(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    settings = {"connections_per_address": MOST, "trusted_proxies": f" {PROXY}/32, 10.0.0.0/8"}
    with served(answering.app(), monkeypatch, **settings) as port:
        yield port


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_connections_are_limited_per_address(port: int, opened: ExitStack) -> None:
    held = [opened.enter_context(connected(port, CLIENT)) for _ in range(MOST)]
    refused = exchange(port, post("/echo"), CLIENT)
    assert (status(refused), code(refused)) == (429, "too_many_connections")
    assert b"retry-after: 1" in refused
    assert status(exchange(port, post("/echo"), OTHER)) == 200
    held[0].close()
    while status(response := exchange(port, post("/echo"), CLIENT)) != 200:
        assert code(response) == "too_many_connections"


def slow(port: int, opened: ExitStack, forwarded: str, source: str = PROXY) -> socket.socket:
    """A request under way whose client is said to be `forwarded`."""
    client = opened.enter_context(connected(port, source))
    client.sendall(post("/slow", b"{}", f"X-Forwarded-For: {forwarded}"))
    return client


def test_a_trusted_proxys_clients_are_counted_by_their_requests(
    port: int, answering: Answering, opened: ExitStack
) -> None:
    idle = [opened.enter_context(connected(port, PROXY)) for _ in range(3 * MOST)]
    under_way = [slow(port, opened, f"192.0.2.{n}, 198.51.100.7") for n in range(MOST)]
    refused = everything(slow(port, opened, "198.51.100.7, 10.1.2.3"))
    assert (status(refused), code(refused)) == (429, "too_many_connections")
    unfinished = opened.enter_context(connected(port, PROXY))
    unfinished.sendall(post("/echo", b"", "X-Forwarded-For: 198.51.100.7", length=2))
    assert code(everything(unfinished)) == "too_many_connections"
    others = slow(port, opened, "198.51.100.8")
    answering.release.set()
    assert [status(everything(client)) for client in (*under_way, others)] == [200] * (MOST + 1)
    for client in idle:  # one after the other is no crowd
        client.sendall(post("/echo", b"{}", "X-Forwarded-For: 198.51.100.7"))
        assert status(everything(client)) == 200


def test_forwarded_addresses_of_untrusted_clients_are_ignored(
    port: int, answering: Answering, opened: ExitStack
) -> None:
    for n in range(MOST):
        slow(port, opened, f"198.51.100.{n}", CLIENT)
    assert code(exchange(port, post("/echo", b"{}", "X-Forwarded-For: 203.0.113.1"), CLIENT))
    answering.release.set()


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "20010db800010002::/64"),
        ("2001:db8:1:2::1", "20010db800010002::/64"),
        ("2001:db8:1:3::1", "20010db800010003::/64"),
        ("10.255.0.1", None),
        ("fd00::1", None),
        ("unknown", "unknown"),
    ],
)
def test_addresses_are_mapped_to_clients(address: str, client: str | None) -> None:
    assert client_of(address, TRUSTED) == client


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("1.1.1.1,198.51.100.7", "198.51.100.7"),
        ("1.1.1.1, 198.51.100.7, 10.0.0.1 ,127.0.0.9", "198.51.100.7"),
        ("10.0.0.1", None),
        ("", None),
        ("10.0.0.1,", None),
    ],
)
def test_the_last_untrusted_forwarded_address_is_the_client(chain: str, client: str | None) -> None:
    assert forwarded_client(chain, TRUSTED) == client


class Waiting(BoundedProtocol):
    """A connection of a client that is waited for."""

    def __init__(self, connections: Connections, size: int = 0) -> None:
        self.buffered, self.gone, self.shared = 0, False, connections
        connections.wait(self, 10)
        connections.buffer(self, size)

    def expired(self) -> None:
        raise AssertionError("its time is not over")

    def shed(self) -> None:
        self.gone = True
        self.shared.stop_waiting(self)
        self.shared.buffer(self, 0)


async def test_the_longest_waiting_connection_is_closed_at_the_limit() -> None:
    connections = Connections(EdgeSettings())
    first, second, third = (Waiting(connections) for _ in range(3))
    connections.stop_waiting(first)
    connections.make_room(connections.most)
    assert not second.gone
    connections.make_room(connections.most + 1)
    assert [client.gone for client in (first, second, third)] == [False, True, False]


async def test_the_oldest_bodies_are_dropped_when_all_together_are_too_large() -> None:
    connections = Connections(EdgeSettings())
    half = MAX_BUFFERED_BYTES // 2
    head, first, second = Waiting(connections), Waiting(connections, half), Waiting(connections, half)
    assert not first.gone
    third = Waiting(connections, 10)
    assert [client.gone for client in (head, first, second, third)] == [False, True, False, False]
    connections.buffer(second, 0)
    connections.buffer(third, MAX_BUFFERED_BYTES)
    assert not third.gone


def test_lists_in_the_environment_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYBOOK_ALLOWED_HOSTS", "shop.example, localhost")
    monkeypatch.setenv("DAYBOOK_TRUSTED_PROXIES", f"{HOST},10.0.0.0/8")
    settings = EdgeSettings()
    assert settings.allowed_hosts == ("shop.example", "localhost")
    assert settings.trusted_proxies == (ip_network(f"{HOST}/32"), ip_network("10.0.0.0/8"))
