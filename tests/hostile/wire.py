"""Sends inputs to an API over few connections, and counts the statuses of its responses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import uvloop

from infra.base.ports import HOST

CONNECTIONS = 12
PATIENCE = 30.0
PROBE_SECONDS = 5.0
KEPT, SHOWN = 5, 1500
NOTHING = 0
"""The status where the server closes the connection without a response."""


@dataclass
class Responses:
    """How many responses had each status, and the first inputs whose response no input may cause."""

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[tuple[bytes, bytes]] = field(default_factory=list)

    def note(self, request: bytes, status: int, response: bytes, allowed: frozenset[int]) -> None:
        self.statuses[status] += 1
        if (status >= 500 or (allowed and status not in allowed)) and len(self.wrong) < KEPT:
            self.wrong.append((request[:SHOWN], response[:SHOWN]))


def send(port: int, inputs: Iterator[bytes], count: int, *allowed: int, framed: bool = True) -> Responses:
    """Send so many of the inputs. Every status of 500 and more is wrong, and if there are some `allowed`, every other.

    Inputs that are not `framed` get a connection each.
    """
    responses = Responses()
    shared = islice(inputs, count)

    async def run() -> None:
        client = _framed if framed else _probes
        clients = (client(port, shared, responses, frozenset(allowed)) for _ in range(CONNECTIONS))
        await asyncio.gather(*clients)

    uvloop.run(run())
    return responses


async def _framed(port: int, inputs: Iterator[bytes], responses: Responses, allowed: frozenset[int]) -> None:
    reader = writer = None
    for request in inputs:
        status, response, open_ = NOTHING, b"", False
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if reader is None or writer is None:
                reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(request)
            async with asyncio.timeout(PATIENCE):
                status, response, open_ = await _response(reader, request)
        responses.note(request, status, response, allowed | {NOTHING} if allowed else allowed)
        if not open_ and writer is not None:
            writer.close()
            reader = writer = None
    if writer is not None:
        writer.close()


async def _response(reader: asyncio.StreamReader, request: bytes) -> tuple[int, bytes, bool]:
    """Its status, the whole of it, and whether the connection stays open."""
    head = await reader.readuntil(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    body = b""
    if request.startswith(b"HEAD ") or head[9:12] in (b"304", b"204"):
        pass
    elif b"content-length" in headers:
        body = await reader.readexactly(int(headers[b"content-length"]))
    elif b"chunked" in headers.get(b"transfer-encoding", b""):
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return int(head[9:12]), head + body, headers.get(b"connection") != b"close"


async def _probes(port: int, inputs: Iterator[bytes], responses: Responses, allowed: frozenset[int]) -> None:
    for request in inputs:
        response = b""
        with suppress(ConnectionError, TimeoutError):
            reader, writer = await asyncio.open_connection(HOST, port)
            with suppress(ConnectionError):
                writer.write(request)
                writer.write_eof()
                async with asyncio.timeout(PROBE_SECONDS):
                    response = await reader.read(65_536)
            writer.close()
        status = int(response[9:12]) if response.startswith(b"HTTP/1.1 ") else NOTHING
        responses.note(request, status, response, allowed)
