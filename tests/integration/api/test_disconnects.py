"""A request that is cut off has no effect, wherever the cut is."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from infra.base.ports import HOST
from infra.log.topics import create_topics
from services.kernel.record.envelope import uuid7
from tests.integration.api.processes import eventually, process
from tests.integration.api.responder import Responder
from tests.ports import free_ports

# what follows the document is part of the body: a server that decodes a document too early finds a whole one
DOCUMENT = json.dumps({"reason": "ordered twice"}).encode() + b" \r\n  "
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def port(kafka: str) -> Iterator[int]:
    create_topics(kafka)
    (port,) = free_ports(1)
    with process("order", "api", kafka, port, wait_seconds="3", replica="3"):
        yield port


@pytest.fixture
def responder(kafka: str, port: int) -> Iterator[Responder]:
    assert port, "the API made the topics"
    with closing(Responder(kafka)) as opened:
        yield opened


def head(order_id: str, framing: str) -> bytes:
    lines = (
        f"POST /orders/{order_id}/cancellation HTTP/1.1",
        f"Host: {HOST}",
        "Content-Type: application/json",
        framing,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def with_length(order_id: str) -> bytes:
    return head(order_id, f"Content-Length: {len(DOCUMENT)}") + DOCUMENT


def in_chunks(order_id: str) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (DOCUMENT[:9], DOCUMENT[9:]))
    return head(order_id, "Transfer-Encoding: chunked") + body + b"0\r\n\r\n"


def cut(port: int, sent: bytes, reset: bool) -> None:
    """Send this and go: with a FIN, or with a RST."""
    with socket.create_connection((HOST, port)) as client:
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.sendall(sent)


def whole(port: int, request: bytes) -> bytes:
    """The status line of the response to a whole request."""
    with socket.create_connection((HOST, port)) as client:
        client.sendall(request)
        return client.recv(65_536).partition(b"\r\n")[0]


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("made", [with_length, in_chunks])
def test_a_cut_at_every_byte_has_no_effect(
    port: int, responder: Responder, made: Callable[[str], bytes], reset: bool
) -> None:
    order_id = uuid7()
    request = made(order_id)
    for end in range(1, len(request)):
        cut(port, request[:end], reset)
    # the commands of one order keep their order: this one is the last
    assert whole(port, request) == b"HTTP/1.1 200 OK"
    eventually(
        lambda: order_id in [metadata.subject for metadata, _ in responder.received],
        "the whole request has arrived",
    )
    assert [metadata.subject for metadata, _ in responder.received].count(order_id) == 1
