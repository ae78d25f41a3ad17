"""One address of the router: each client's connection is forwarded to the API of the active site, byte for byte.

The parsers only watch where messages end. Between two requests a client's connection may go on to another site. A
response is held back until it is complete, unless it is large: if it ends in the middle, a whole 503 takes its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import httptools
from prometheus_client import Counter

from services.edge.problems import RETRY_AFTER_SECONDS, Problem

FORWARDED = Counter("daybook_router_forwarded", "Requests with a response of the active site", ["api"])
REFUSED = Counter("daybook_router_refused", "Requests with a 503 of the router itself", ["api", "code"])
MOST_CONNECTIONS = 480  # of the 512 that an API accepts from an address; supervisors need some
CONNECT_SECONDS = 2.0
RESPONSE_SECONDS = 40.0  # without a byte; an API responds within 30 s
IDLE_SECONDS = 70.0  # less than an API keeps an idle connection
HELD_BYTES = 65_536  # of a response; those to writes are much smaller
LINGER_SECONDS = 2.0  # for a client to read a refusal
SAFE_METHODS = (b"GET", b"HEAD", b"OPTIONS")

Target: TypeAlias = tuple[str, int]
"""Host and port of an API."""


def _unavailable(code: str, reason: str) -> Problem:
    detail = f"{reason}. It is safe to repeat this request under the same Idempotency-Key."
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS), "Connection": "close"}
    return Problem(503, code, detail, headers=headers)


TOO_MANY = _unavailable("too_many_connections", "the router has no free connection; nothing was sent")
NO_ACTIVE_SITE = _unavailable("no_active_site", "no site is active now; the request was not sent")
UNREACHABLE = _unavailable("site_unreachable", "the active site does not respond; the request was not sent")
OUTCOME_UNKNOWN = _unavailable("outcome_unknown", "the request was sent, and its response did not arrive")


@dataclass
class PassedRequest:
    """A request without its whole response. `repeatable`: sending it again does not execute it again."""

    method: bytes = b""
    repeatable: bool = False
    last: bool = False


class Relay:
    """The connections of one address. `target` is None while there is no site to send to."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.target: Target | None = None
        self.clients: set[ClientConnection] = set()
        self.forwarded = FORWARDED.labels(api)

    def move(self, target: Target | None) -> None:
        """Send requests to `target` from now on. Those under way end with a 503: nothing that a replaced site says
        later reaches a client."""
        if target != self.target:
            self.target = target
            for client in list(self.clients):
                client.detach()

    def sweep(self) -> None:
        """End what has been silent for too long."""
        for client in list(self.clients):
            client.check()


class ClientConnection(asyncio.Protocol):
    """A client, with a connection to the API from its first request on."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._parser = httptools.HttpRequestParser(self)
        self._api: ApiConnection | None = None
        self._current = PassedRequest()  # whose bytes arrive
        self._waiting: deque[PassedRequest] = deque()  # for their responses, in order
        self._held = bytearray()  # of a response
        self._responding = False  # the client may have part of a response
        self._last = False  # the connection ends with the API's
        self._refused = False
        self._touched = asyncio.get_running_loop().time()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._relay.clients.add(self)
        if len(self._relay.clients) > MOST_CONNECTIONS:
            self._refuse(TOO_MANY)

    def connection_lost(self, _: Exception | None) -> None:
        self._relay.clients.discard(self)
        self._drop_api()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._touch()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._last = True  # the API refuses it, and closes
        if self._api is None and (self._waiting or self._last):
            self._connect()
        if self._api is not None:
            self._api.send(data)

    def pause_writing(self) -> None:
        if self._api is not None and self._api.transport is not None:
            self._api.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._api is not None and self._api.transport is not None:
            self._api.transport.resume_reading()

    def on_message_begin(self) -> None:
        self._current = PassedRequest()
        self._waiting.append(self._current)

    def on_header(self, name: bytes, _: bytes) -> None:
        if name.lower() == b"idempotency-key":
            self._current.repeatable = True

    def on_headers_complete(self) -> None:
        self._current.method = self._parser.get_method()
        self._current.repeatable |= self._current.method in SAFE_METHODS
        self._current.last = not self._parser.should_keep_alive()

    @property
    def method(self) -> bytes:
        """That of the request whose response arrives."""
        return self._waiting[0].method if self._waiting else b""

    def respond(self, data: bytes) -> None:
        self._touch()
        self._held += data
        if len(self._held) > HELD_BYTES:
            self._responding = True
            self.continued()

    def continued(self) -> None:
        self.transport.write(bytes(self._held))
        self._held.clear()

    def responded(self, keep_alive: bool) -> None:
        self.continued()
        self._relay.forwarded.inc()
        self._responding = len(self._waiting) > 1  # what was held may have been more than this response
        request = self._waiting.popleft() if self._waiting else PassedRequest(last=True)
        self._last = self._last or request.last or not keep_alive

    def api_lost(self, api: ApiConnection) -> None:
        if api is self._api:
            self.detach()

    def detach(self) -> None:
        """Go on without this connection to the API. Between two requests the client does not notice."""
        sent = self._drop_api()
        if self._refused or not (self._waiting or self._last):
            return
        if not sent:
            self._refuse(UNREACHABLE)
        elif self._waiting and self._waiting[0].repeatable and not self._responding:
            self._refuse(OUTCOME_UNKNOWN)
        else:
            self.transport.close()  # nobody knows the outcome, or the client has part of a response

    def check(self) -> None:
        silent = asyncio.get_running_loop().time() - self._touched
        if self._refused or self.transport.is_closing():
            if silent > LINGER_SECONDS:
                self.transport.abort()
        elif self._waiting:
            if silent > RESPONSE_SECONDS:
                self.detach()
        elif silent > IDLE_SECONDS:
            self.transport.close()

    def _connect(self) -> None:
        if self._relay.target is None:
            self._refuse(NO_ACTIVE_SITE)
            return
        self.transport.pause_reading()  # until the connection is open
        self._api = ApiConnection(self, self._relay.target)

    def _drop_api(self) -> bool:
        """Returns whether it was open: the request may have been executed."""
        api, self._api = self._api, None
        if api is not None:
            api.abandon()
        return api is not None and api.transport is not None

    def _refuse(self, problem: Problem) -> None:
        """Respond with a problem, and discard what still arrives, so that the client can read it."""
        REFUSED.labels(self._relay.api, problem.code).inc()
        self._drop_api()
        self._held.clear()
        self._waiting.clear()
        self._refused = True
        self._touch()
        response = problem.response()
        lines = [b"HTTP/1.1 503 Service Unavailable", *map(b": ".join, response.raw_headers), b""]
        self.transport.write(b"\r\n".join([*lines, bytes(response.body)]))
        self.transport.write_eof()
        self.transport.resume_reading()

    def _touch(self) -> None:
        self._touched = asyncio.get_running_loop().time()


class ApiConnection(asyncio.Protocol):
    """The connection to the API for one client; `transport` is None until it is open."""

    def __init__(self, client: ClientConnection, target: Target) -> None:
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._unsent: list[bytes] = []
        self._abandoned = False
        self.transport: Any = None
        self._opening = asyncio.create_task(self._open(target))

    def send(self, data: bytes) -> None:
        if self.transport is None:
            self._unsent.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def abandon(self) -> None:
        """Nothing that comes from here counts any more."""
        self._abandoned = True
        if self.transport is not None:
            self.transport.abort()

    async def _open(self, target: Target) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: self, *target)
        except (OSError, TimeoutError):
            self._client.api_lost(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._abandoned:
            transport.abort()  # type: ignore[attr-defined] # of every TCP transport
            return
        self.transport = transport
        self.transport.write(b"".join(self._unsent))
        self._client.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._client.api_lost(self)

    def data_received(self, data: bytes) -> None:
        if self._abandoned:
            return
        self._client.respond(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._client.api_lost(self)

    def pause_writing(self) -> None:
        self._client.transport.pause_reading()

    def resume_writing(self) -> None:
        self._client.transport.resume_reading()

    def on_headers_complete(self) -> None:
        if self._client.method == b"HEAD" and self._parser.get_status_code() >= 200:
            self._respond_whole()
            self._parser = httptools.HttpResponseParser(self)  # the body of this length does not follow

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            self._client.continued()  # 100: the client sends the rest, and the response follows
        else:
            self._respond_whole()

    def _respond_whole(self) -> None:
        self._client.responded(self._parser.should_keep_alive())
