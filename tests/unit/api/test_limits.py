"""Limits of size and time for requests, over real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import msgspec
import pytest

from infra.base.ports import HOST
from services.edge import protocol
from services.edge.problems import MAX_BODY_BYTES
from services.edge.protocol import MAX_HEAD_BYTES, MAX_PIPELINED
from tests.unit.api.servers import (
    PATIENCE,
    Answering,
    code,
    connected,
    everything,
    exchange,
    post,
    served,
    status,
)

SOON = 0.5
SLOW = {"header_seconds": SOON, "body_seconds": SOON}
CHUNKED = post("/echo", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")


@pytest.fixture
def answering() -> Answering:
    return Answering()


@pytest.fixture
def port(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with served(answering.app(), monkeypatch) as port:
        yield port


@pytest.fixture
def impatient(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with served(answering.app(), monkeypatch, **SLOW) as port:
        yield port


def in_pieces(port: int, request: bytes, size: int) -> bytes:
    with connected(port) as client:
        for start in range(0, len(request), size):
            client.sendall(request[start : start + size])
        return everything(client)


def headed(size: int) -> bytes:
    """A whole request whose head has so many bytes."""
    short = post("/echo", b"{}", "X-Long: ")
    return post("/echo", b"{}", f"X-Long: {'x' * (size - len(short) + len(b'{}'))}")


@pytest.mark.parametrize("size", [1 << 20, 1000])
def test_a_head_has_at_most_32_kib(port: int, size: int) -> None:
    assert len(headed(MAX_HEAD_BYTES)) == MAX_HEAD_BYTES + len(b"{}")
    assert status(in_pieces(port, headed(MAX_HEAD_BYTES), size)) == 200
    assert code(in_pieces(port, headed(MAX_HEAD_BYTES + 1), size)) == "headers_too_large"
    response = in_pieces(port, b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n\r\n", size)
    assert (status(response), code(response)) == (431, "headers_too_large")


def test_the_head_limit_applies_to_each_request_of_a_connection(port: int) -> None:
    alive = headed(MAX_HEAD_BYTES - 8).replace(b"Connection: close", b"Connection: keep-alive")
    with connected(port) as client:
        for _ in range(3):
            client.sendall(alive)
            assert status(client.recv(65_536)) == 200
        client.sendall(headed(MAX_HEAD_BYTES))
        assert status(everything(client)) == 200


def test_an_endless_header_is_not_read_beyond_the_limit(port: int) -> None:
    part, sent = b"x" * 65_536, 0
    with connected(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            while sent < 512 * len(part):
                client.sendall(part)
                sent += len(part)
    assert sent < 32 * 1024 * 1024


def test_chunk_extensions_and_trailers_have_a_limit(port: int, answering: Answering) -> None:
    trailer = b"2\r\n{}\r\n0\r\nX-Long: " + b"x" * (2 * MAX_HEAD_BYTES)
    assert code(exchange(port, CHUNKED + trailer)) == "headers_too_large"
    assert code(exchange(port, CHUNKED + b"2;" + b"x" * (2 * MAX_HEAD_BYTES))) == "headers_too_large"
    assert answering.called == 0


def test_trailers_are_not_headers(port: int) -> None:
    response = exchange(port, CHUNKED + b'2\r\n{}\r\n0\r\nIf-Match: "1"\r\nX-More: 1\r\n\r\n')
    document = msgspec.json.decode(response.partition(b"\r\n\r\n")[2])
    assert document["bytes"] == 2
    assert not {"if-match", "x-more"} & set(document["headers"])


@pytest.mark.parametrize(
    "begun", [b"G", b"GET / HTTP/1.1\r\n", b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long:"]
)
def test_a_slow_head_times_out(impatient: int, begun: bytes) -> None:
    response = exchange(impatient, begun)
    assert (status(response), code(response)) == (408, "request_timeout")


def test_a_slow_body_times_out(impatient: int, answering: Answering) -> None:
    assert code(exchange(impatient, post("/echo", b"{", length=2))) == "request_timeout"
    assert code(exchange(impatient, CHUNKED + b"2\r\n{}\r\n")) == "request_timeout"
    assert answering.called == 0


def test_occasional_bytes_do_not_extend_the_timeout(impatient: int) -> None:
    with connected(impatient) as client:
        client.settimeout(SOON / 10)
        received, until = b"", time.monotonic() + PATIENCE
        request = iter(post("/echo", b"{" + b" " * 10_000))
        while not received and time.monotonic() < until:
            client.send(bytes([next(request)]))
            try:
                received = client.recv(65_536)
            except TimeoutError:
                continue
    assert code(received) == "request_timeout"


def test_an_idle_connection_is_closed_without_a_response(impatient: int) -> None:
    assert exchange(impatient, b"") == b""


def test_the_timeout_applies_to_the_second_request_of_a_connection(impatient: int) -> None:
    with connected(impatient) as client:
        client.sendall(post("/echo").replace(b"Connection: close", b"Connection: keep-alive"))
        assert status(client.recv(65_536)) == 200
        time.sleep(2 * SOON)  # idle it may be for longer
        client.sendall(b"POST /echo HT")
        assert code(everything(client)) == "request_timeout"


def test_a_response_may_take_longer_than_the_request_timeout(impatient: int, answering: Answering) -> None:
    with connected(impatient) as client:
        client.sendall(post("/slow"))
        time.sleep(3 * SOON)
        answering.release.set()
        assert status(everything(client)) == 200


def test_a_content_length_above_the_limit_is_refused_before_the_body(port: int, answering: Answering) -> None:
    for expecting in ((), ("Expect: 100-continue",)):
        response = exchange(port, post("/echo", b"", *expecting, length=MAX_BODY_BYTES + 1))
        assert (status(response), code(response)) == (413, "body_too_large")
    sent = exchange(port, post("/echo", b" " * (2 * MAX_BODY_BYTES)))
    assert code(sent) == "body_too_large"
    assert answering.called == 0
    whole = exchange(port, post("/echo", b" " * MAX_BODY_BYTES))
    assert f'"bytes":{MAX_BODY_BYTES}'.encode() in whole


def test_chunks_above_the_body_limit_are_refused(port: int, answering: Answering) -> None:
    chunk = b"10000\r\n%s\r\n" % (b" " * 65_536)
    assert code(exchange(port, CHUNKED + chunk * 17)) == "body_too_large"
    assert answering.called == 0
    assert b'"bytes":1048576' in exchange(port, CHUNKED + chunk * 16 + b"0\r\n\r\n")


def test_expect_100_continue_is_honoured(port: int) -> None:
    with connected(port) as client:
        client.sendall(post("/echo", b"", "Expect: 100-continue", length=2))
        assert client.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"{}")
        assert status(everything(client)) == 200


def test_the_application_gets_only_whole_requests(port: int, answering: Answering) -> None:
    request = post("/echo", b'{"a": 1}  ')
    for end in range(len(request)):
        with connected(port) as client:
            client.sendall(request[:end])
    assert status(exchange(port, request)) == 200
    assert answering.called == 1


def test_pipelined_requests_get_responses_in_order(port: int) -> None:
    first = post("/echo", b"{ }").replace(b"Connection: close\r\n", b"")
    responses = exchange(port, first * 3 + post("/echo", b"{}"))
    assert [part[:3] for part in responses.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 4
    assert responses.count(b'"bytes":3') == 3


def test_pipelined_requests_are_limited(port: int, answering: Answering) -> None:
    many = post("/echo", b"{}").replace(b"Connection: close\r\n", b"") * 1000
    responses = exchange(port, many)
    assert 1 <= responses.count(b"HTTP/1.1 200") == answering.called <= MAX_PIPELINED + 1


def test_bytes_after_a_request_do_not_affect_its_response(port: int, answering: Answering) -> None:
    whole = post("/slow").replace(b"Connection: close\r\n", b"")
    with connected(port) as client:
        client.sendall(whole + b"\x00 garbage")
        time.sleep(0.2)
        answering.release.set()
        response = everything(client)
    assert response.count(b"HTTP/1.1 ") == 1
    assert status(response) == 200
    assert b"connection: close" in response


def test_a_client_that_does_not_read_is_disconnected(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "WRITE_SECONDS", SOON)
    with served(answering.app(), monkeypatch) as port, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((HOST, port))
        client.sendall(b"GET /big HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(6 * SOON)
        client.settimeout(PATIENCE)
        received = everything(client)
    assert len(received) < 4 * 1024 * 1024


def test_shutdown_does_not_wait_for_slow_clients(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(answering.app(), monkeypatch) as port:
        slow = [connected(port) for _ in range(3)]
        slow[1].sendall(b"GET /")
        slow[2].sendall(post("/echo", b"{", length=2))
        time.sleep(0.2)
        began = time.monotonic()
    assert time.monotonic() - began < protocol.WRITE_SECONDS / 3
    for client in slow:
        client.close()


@pytest.mark.parametrize(
    "line",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nName : value\r\n\r\n",
        b"CONNECT somewhere:443 HTTP/1.1\r\nHost: somewhere\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
def test_a_malformed_request_gets_a_problem(port: int, line: bytes) -> None:
    response = exchange(port, line)
    assert (status(response), code(response)) == (400, "malformed_request")


def test_protocol_upgrades_are_ignored(port: int) -> None:
    upgrade = b"Host: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nmore"
    response = exchange(port, b"GET /health/live HTTP/1.1\r\n" + upgrade)
    assert status(response) == 200
    assert b"connection: close" in response
