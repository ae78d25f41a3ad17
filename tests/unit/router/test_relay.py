"""Connections of the router, over real sockets: nothing is changed, and no response belongs to another request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec
import pytest

from infra.base.ports import HOST
from infra.router import relay as router_relay
from infra.router.relay import ClientConnection, Relay
from tests.waiting import wait_until_async

SECONDS = 10.0
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ORDER = b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}"
NO_KEY = ORDER.replace(b"Idempotency-Key: k\r\n", b"")
READ = b"GET /orders HTTP/1.1\r\nHost: a\r\n\r\n"


class Api:
    """A site's API that says its name: never to a request with `/never`, and only half of `/half`."""

    def __init__(self, name: bytes) -> None:
        self.name, self.connections = name, 0
        self.requests: list[bytes] = []
        self.open: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[16:]) for line in head.split(b"\r\n") if line[:15] == b"Content-Length:"), 0
                )
                self.requests.append(head + await reader.readexactly(length))
                await self._respond(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def _respond(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/never" in head:
            return
        if b"/large" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(300):
                writer.write(b"10000\r\n" + 65_536 * b"x" + b"\r\n")
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            return
        length = 100 if b"/half" in head else len(self.name)
        if b"Expect" in head:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
        writer.write(b"" if head.startswith(b"HEAD") else self.name)


class Shop:
    """Two sites' APIs, and the relay before them, which sends to `home` at first."""

    def __init__(self) -> None:
        self.home, self.away = Api(b"home"), Api(b"away")
        self.relay = Relay("order-api")
        self.ports: dict[Api | None, int] = {}
        self._clients: list[asyncio.StreamWriter] = []

    def move(self, api: Api | None) -> None:
        self.relay.move((HOST, self.ports[api]) if api else None)

    async def connect(self) -> Streams:
        streams = await asyncio.open_connection(HOST, self.ports[None])
        self._clients.append(streams[1])
        return streams

    async def end(self) -> None:
        """Every connection, from all sides."""
        transports = [writer.transport for writer in (*self._clients, *self.home.open, *self.away.open)]
        for transport in (*transports, *(client.transport for client in self.relay.clients)):
            transport.abort()
        await asyncio.sleep(0.05)


@asynccontextmanager
async def shop() -> AsyncIterator[Shop]:
    made, servers = Shop(), []
    for api in (made.home, made.away):
        servers.append(server := await asyncio.start_server(api.accept, HOST, 0))
        made.ports[api] = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    servers.append(front := await loop.create_server(lambda: ClientConnection(made.relay), HOST, 0))
    made.ports[None] = front.sockets[0].getsockname()[1]
    made.move(made.home)
    try:
        yield made
    finally:
        for server in servers:
            server.close()
        await made.end()


def in_shop(test: Callable[[Shop], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), shop() as made:
            await test(made)

    asyncio.run(run())


async def response(streams: Streams) -> tuple[int, dict[str, str], bytes]:
    """The next one: status, headers in lower case, body."""
    first, *lines = (await streams[0].readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await streams[0].readexactly(int(headers.get("content-length", 0)))
    return int(first.split()[1]), headers, body


async def exchange(streams: Streams, request: bytes) -> tuple[int, bytes]:
    streams[1].write(request)
    return (await response(streams))[::2]


async def refusal(streams: Streams, request: bytes = b"") -> str:
    """The code of the router's own 503, after which the connection ends."""
    streams[1].write(request)
    status, headers, body = await response(streams)
    shown = (status, *(headers[name] for name in ("retry-after", "content-type", "connection")))
    assert shown == (503, "1", "application/problem+json", "close")
    assert await streams[0].read() == b""
    problem = msgspec.json.decode(body)
    assert "safe to repeat this request under the same Idempotency-Key" in problem["detail"]
    return str(problem["code"])


async def arrives(api: Api) -> None:
    async def count() -> int:
        return len(api.requests)

    await wait_until_async(count, "the request arrives", SECONDS)
    await asyncio.sleep(0.1)  # and half of a response, where the API begins one


def test_requests_pass_unchanged_over_connections_that_are_kept() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        whole = ORDER.replace(
            b"\r\nCon", b'\r\nIf-Match: "3"\r\ntraceparent: 00-1-2-01\r\nX-Correlation-Id: c\r\nCon'
        )
        client[1].write(whole[:30])
        await asyncio.sleep(0.05)
        assert await exchange(client, whole[30:]) == (200, b"home")
        assert await exchange(client, READ) == (200, b"home")
        assert made.home.requests == [whole, READ]
        assert (made.home.connections, made.away.connections) == (1, 0)

    in_shop(test)


def test_a_connection_goes_on_at_the_other_site_between_two_requests() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        for api in (made.home, made.away, made.home):
            made.move(api)
            assert await exchange(client, ORDER) == (200, api.name)

    in_shop(test)


def test_pipelined_requests_are_answered_in_order_by_one_site() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        client[1].write(ORDER + READ + ORDER)
        assert [await response(client) for _ in range(3)] == 3 * [(200, {"content-length": "4"}, b"home")]
        made.move(made.away)
        assert await exchange(client, READ) == (200, b"away")

    in_shop(test)


def test_without_an_active_site_nothing_is_sent() -> None:
    async def test(made: Shop) -> None:
        made.move(None)
        assert await refusal(await made.connect(), ORDER) == "no_active_site"
        assert await refusal(await made.connect(), NO_KEY) == "no_active_site"
        made.relay.move((HOST, 1))  # nobody listens
        assert await refusal(await made.connect(), ORDER) == "site_unreachable"
        assert made.home.connections == made.away.connections == 0

    in_shop(test)


@pytest.mark.parametrize("path", [b"/never", b"/half"])
@pytest.mark.parametrize("request_", [ORDER, READ], ids=["with a key", "a read"])
def test_what_is_under_way_when_the_site_changes_may_be_repeated(request_: bytes, path: bytes) -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        client[1].write(request_.replace(b"/orders", path))
        await arrives(made.home)
        made.move(made.away)
        # the replaced site responds after all: nobody may see it
        made.home.open[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhome")
        assert await refusal(client) == "outcome_unknown"
        assert await exchange(await made.connect(), request_) == (200, b"away")

    in_shop(test)


@pytest.mark.parametrize("path", [b"/never", b"/half"])
def test_a_write_without_a_key_that_may_have_been_executed_gets_no_advice(path: bytes) -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        client[1].write(NO_KEY.replace(b"/orders", path))
        await arrives(made.home)
        made.move(made.away)
        assert await client[0].read() == b""

    in_shop(test)


def test_part_of_a_large_response_is_never_continued() -> None:
    async def test(made: Shop) -> None:
        (reader, writer) = await made.connect()
        writer.write(READ.replace(b"/orders", b"/large"))
        received = await reader.readexactly(100_000)
        made.move(made.away)
        assert (received + await reader.read()).count(b"HTTP/1.1") == 1

    in_shop(test)


def test_an_api_that_ends_between_two_requests_is_not_noticed() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        assert await exchange(client, ORDER) == (200, b"home")
        made.home.open[0].close()
        await asyncio.sleep(0.1)
        assert await exchange(client, ORDER) == (200, b"home")
        assert made.home.connections == 2

    in_shop(test)


def test_a_head_names_a_length_and_has_no_body() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        for _ in range(2):
            client[1].write(READ.replace(b"GET", b"HEAD"))
            assert b"Content-Length: 4" in await client[0].readuntil(b"\r\n\r\n")
        made.move(made.away)
        assert await exchange(client, READ) == (200, b"away")

    in_shop(test)


def test_a_response_follows_100_continue() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        client[1].write(ORDER.replace(b"\r\nCon", b"\r\nExpect: 100-continue\r\nCon"))
        assert (await response(client))[0] == 100
        assert (await response(client))[0] == 200
        made.move(made.away)
        assert await exchange(client, READ) == (200, b"away")

    in_shop(test)


def test_the_connection_ends_where_the_client_or_the_api_says_so() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        last = READ.replace(b"Host: a", b"Host: a\r\nConnection: close")
        assert await exchange(client, last) == (200, b"home")
        made.home.open[0].close()
        assert await client[0].read() == b""
        client = await made.connect()
        client[1].write(b"nonsense\r\n\r\n")
        assert (await response(client))[0] == 200  # a real API says what is wrong, and closes
        made.home.open[1].close()
        assert await client[0].read() == b""

    in_shop(test)


def test_large_bodies_stream_through_small_buffers() -> None:
    async def test(made: Shop) -> None:
        client = await made.connect()
        body = 1_000_000 * b"y"
        head = ORDER.replace(b"Content-Length: 2\r\n\r\n{}", b"Content-Length: %d\r\n\r\n" % len(body))
        assert await exchange(client, head + body) == (200, b"home")
        assert made.home.requests == [head + body]
        client[1].write(READ.replace(b"/orders", b"/large"))
        await asyncio.sleep(0.2)  # the client does not read yet
        (inside,) = made.relay.clients
        assert inside.transport.get_write_buffer_size() < 1_000_000
        await client[0].readuntil(b"\r\n\r\n")
        assert (await client[0].readexactly(300 * (65_536 + 9) + 5)).endswith(b"x\r\n0\r\n\r\n")

    in_shop(test)


def test_connections_are_bounded_and_silence_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(made: Shop) -> None:
        first, second = await made.connect(), await made.connect()
        assert await exchange(second, READ) == (200, b"home")
        assert await refusal(await made.connect()) == "too_many_connections"
        monkeypatch.setattr(router_relay, "RESPONSE_SECONDS", -1.0)
        first[1].write(ORDER.replace(b"/orders", b"/never"))
        await asyncio.sleep(0.1)
        made.relay.sweep()
        assert await refusal(first) == "outcome_unknown"
        monkeypatch.setattr(router_relay, "IDLE_SECONDS", -1.0)
        made.relay.sweep()
        assert await second[0].read() == b""

    monkeypatch.setattr(router_relay, "MOST_CONNECTIONS", 2)
    in_shop(test)
