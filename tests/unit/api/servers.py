"""An application served as the shop's processes are, and clients that speak to it byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from infra.base.ports import HOST
from infra.base.waiting import wait_until
from services.edge.app import application
from services.edge.server import server_config
from tests.ports import free_ports

PATIENCE = 20.0
BIG = 4 * 1024 * 1024


@dataclass
class Answering:
    """`POST /echo` returns a description of the request, `POST /slow` after `release`; `called` counts both. `GET /big`
    returns a large body."""

    called: int = 0
    release: threading.Event = field(default_factory=threading.Event)

    def app(self) -> FastAPI:
        routes: list[BaseRoute] = [
            Route("/echo", self._echo, methods=["POST"]),
            Route("/slow", self._slow, methods=["POST"]),
            Route("/big", self._big),
        ]
        return application([APIRouter(routes=routes)], lambda: None)

    async def _echo(self, request: Request) -> Response:
        self.called += 1
        body = await request.body()
        document = {"bytes": len(body), "headers": sorted(request.headers.keys()), "path": request.url.path}
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def _slow(self, request: Request) -> Response:
        from anyio import to_thread

        await to_thread.run_sync(self.release.wait, PATIENCE)
        return await self._echo(request)

    async def _big(self, _: Request) -> Response:
        return Response(b"x" * BIG)


@contextmanager
def served(app: Any, monkeypatch: pytest.MonkeyPatch, **settings: object) -> Iterator[int]:
    """The port on which `app` is served, with these settings of the edge."""
    for name, value in settings.items():
        monkeypatch.setenv(f"DAYBOOK_{name.upper()}", str(value))
    (port,) = free_ports(1)
    server = uvicorn.Server(server_config(app, HOST, port))
    thread = threading.Thread(target=server.run, name="served")
    thread.start()
    try:
        wait_until(lambda: server.started, "the server listens", PATIENCE, every=0.01)
        yield port
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def connected(port: int, source: str = HOST) -> socket.socket:
    client = socket.create_connection((HOST, port), PATIENCE, (source, 0))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def everything(client: socket.socket) -> bytes:
    """What comes until the server closes; nothing where it resets."""
    received = b""
    try:
        while part := client.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


def exchange(port: int, request: bytes, source: str = HOST) -> bytes:
    """All that the server says to these bytes, until it closes."""
    with connected(port, source) as client:
        client.sendall(request)
        return everything(client)


def post(path: str, body: bytes = b"{}", *headers: str, length: int | None = None) -> bytes:
    """A request with `Connection: close`."""
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {HOST}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(response: bytes) -> int:
    return int(response[9:12]) if response else 0


def code(response: bytes) -> str:
    """The code of a problem response. Fails if it is no problem, or if the connection stays open."""
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/problem+json" in lines, response
    assert b"connection: close" in lines
    document = msgspec.json.decode(body)
    assert document["status"] == status(response)
    assert document["type"] == f"urn:daybook:problem:{document['code']}"
    return str(document["code"])
