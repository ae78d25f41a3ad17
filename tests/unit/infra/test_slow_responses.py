"""A worker of Connect, or a registry, that takes a request and does not respond in time is tried again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from contracts.lock import Lock
from infra.base.ports import HOST
from infra.stack.compose import connectors, fill_registry

# As a worker of Connect says it. The registry's response to the same requests is not read.
RUNS = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}


@dataclass
class SlowAtFirst:
    """The first response has no body until the test is over."""

    url: str = ""
    requests: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(f"{handler.command} {handler.path}")
        first, body = len(self.requests) == 1, msgspec.json.encode(RUNS)
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if first:
            self.over.wait()
        else:
            handler.wfile.write(body)


@pytest.fixture
def server() -> Iterator[SlowAtFirst]:
    slow = SlowAtFirst()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            slow.respond(self)

        do_PUT = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as listening:
        slow.url = f"http://{HOST}:{listening.server_port}"
        serving = threading.Thread(target=listening.serve_forever)
        serving.start()
        try:
            yield slow
        finally:
            slow.over.set()
            listening.shutdown()
            serving.join()


def test_connect_is_asked_again(server: SlowAtFirst, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectors, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(connectors, "STEADY_SECONDS", 0.0)
    connectors.put(server.url, "prices", {"topic": "supplier.prices"})
    assert server.requests[:3] == [
        "PUT /connectors/prices/config",
        "PUT /connectors/prices/config",
        "GET /connectors/prices/status",
    ]


def test_a_registry_is_asked_again(server: SlowAtFirst, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_registry, "ASK_SECONDS", 0.2)
    assert fill_registry.fill(server.url, Lock([])) == 0
    assert server.requests == ["GET /subjects", "GET /subjects", "PUT /config"]
