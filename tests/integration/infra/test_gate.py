"""The gate before the tools of profiles: without the password, nothing of a request reaches a tool."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from infra.base.ports import HOST
from infra.stack.compose.gate import HEAD_BYTES, Gate

PASSWORD = "a long one"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def request(credentials: str | None = None, scheme: str = "Basic", body: bytes = b"") -> bytes:
    authorization = "" if credentials is None else f"authorization: {scheme} {credentials}\r\n"
    return f"GET / HTTP/1.1\r\nHost: tool\r\n{authorization}\r\n".encode() + body


def basic(password: str, user: str = "shop") -> str:
    return b64encode(f"{user}:{password}".encode()).decode()


class Tool:
    """Answers each connection once, and keeps what it received."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.read(65_536))
        writer.write(ANSWER)
        writer.close()


@asynccontextmanager
async def gate_before(tool: Tool) -> AsyncIterator[int]:
    """The gate's port."""
    async with await asyncio.start_server(tool, HOST, 0) as there:
        behind = there.sockets[0].getsockname()[:2]
        async with await asyncio.start_server(Gate(behind, PASSWORD), HOST, 0, limit=HEAD_BYTES) as gate:
            yield gate.sockets[0].getsockname()[1]


async def sent(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_with_the_password_everything_passes_unchanged() -> None:
    tool = Tool()
    async with gate_before(tool) as port:
        data = request(basic(PASSWORD, "anybody"), body=b"x" * 100)
        assert await sent(port, data) == ANSWER
    assert tool.received == [data]


@pytest.mark.parametrize(
    "data",
    [
        request(),
        request(basic("another")),
        request(basic("")),
        request(b64encode(PASSWORD.encode()).decode()),
        request("not base64!"),
        request(""),
        request(basic(PASSWORD), scheme="Bearer"),
        request(basic("another")) + request(basic(PASSWORD)),
        request(basic("another")).replace(b"Host", f"authorization: Basic {basic('')}\r\nHost".encode()),
        b"GET /?authorization: Basic " + basic(PASSWORD).encode() + b" HTTP/1.1\r\nHost: tool\r\n\r\n",
    ],
)
async def test_without_it_nothing_does(data: bytes) -> None:
    tool = Tool()
    async with gate_before(tool) as port:
        response = await sent(port, data)
    assert response.startswith(b"HTTP/1.1 401 ") and b"WWW-Authenticate: Basic" in response
    assert tool.received == []


async def test_a_head_without_an_end_is_no_request() -> None:
    tool = Tool()
    async with gate_before(tool) as port:
        assert await sent(port, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * HEAD_BYTES) == b""
    assert tool.received == []


async def test_a_tool_that_is_not_there_is_a_bad_gateway() -> None:
    async with await asyncio.start_server(Tool(), HOST, 0) as there:
        behind = there.sockets[0].getsockname()[:2]
    async with await asyncio.start_server(Gate(behind, PASSWORD), HOST, 0) as gate:
        port = gate.sockets[0].getsockname()[1]
        assert (await sent(port, request(basic(PASSWORD)))).startswith(b"HTTP/1.1 502 ")
