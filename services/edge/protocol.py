"""HTTP/1.1 with limits: extends uvicorn's protocol on httptools, which has none (ADR 16).

The application gets only whole requests: it runs when the last byte of the body has arrived. A request that is
cut off, too large or too slow never reaches it; this module returns the problem, if the client can read one.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from services.edge.problems import MAX_BODY_BYTES, REFUSED, RETRY_AFTER_SECONDS, Problem, body_too_large
from services.edge.settings import EdgeSettings, Networks

SWEEP_SECONDS = 0.1  # Often, so that few expire at once: each expiry is a response that delays the others.
MAX_BUFFERED_BYTES = 64 * 1024 * 1024
MAX_DISCARDED_BYTES = 4 * MAX_BODY_BYTES
MAX_DESCRIPTORS = 65_536
RESERVED_DESCRIPTORS = 128  # for the log, the database and files
MAX_HEAD_BYTES = 32 * 1024
MAX_PIPELINED = 32
# How long a client may take to read a refusal, and any response.
LINGER_SECONDS, WRITE_SECONDS = 2.0, 30.0
IDLE, HEAD, BODY = range(3)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. All connections of a server share `connections`."""

    def __init__(self, connections: Connections, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._shared = connections
        self._limits = connections.settings
        self._client: str | None = None  # the client that is counted; None for a trusted proxy
        self._forwarded: str | None = None  # the client behind a proxy, while its request runs
        self._stage = self._awaited_stage = IDLE
        self._head = 0  # bytes of an unfinished head, or of what is neither head nor body
        self._deferred: tuple[RequestResponseCycle, Any] | None = None
        self._running: RequestResponseCycle | None = None  # the request that the application is processing
        self._refused = False  # reads nothing more from the client
        self._discarded = 0  # bytes that may still arrive after a refusal
        self.buffered = 0

    # called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._shared.make_room(len(self.connections))
        client = client_of(self.client[0], self._limits.trusted_proxies) if self.client else None
        if client is not None and not self._shared.enter(client):
            self._refuse(_too_many_connections())
            return
        self._client = client
        self._shared.wait(self, self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        for client in (self._client, self._forwarded):
            if client is not None:
                self._shared.leave(client)
        self._client = self._forwarded = None

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._discarded -= len(data)
            if self._discarded < 0:
                self.transport.abort()
            return
        while data and not self._refused:
            room = MAX_HEAD_BYTES - self._head
            self._feed(data[:room])
            data = data[room:]
        if self._stage != IDLE and not self._refused:
            self._await_rest()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_client()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._await_client()

    def shutdown(self) -> None:
        if self._running is not None:
            self._running.keep_alive = False
        else:
            self.transport.close()

    # called by the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = HEAD

    def on_headers_complete(self) -> None:
        self._stage = BODY
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests at once")
        super().on_headers_complete()
        self._head = 0
        self.headers = []  # trailers are not headers of the request

    def on_body(self, body: bytes) -> None:
        self._head = 0
        self.cycle.body += body
        if len(self.cycle.body) > MAX_BODY_BYTES:
            self._refuse(body_too_large())

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stage = self._awaited_stage = IDLE
        if self.buffered:
            self._shared.buffer(self, 0)
        if self._deferred is not None:
            deferred, self._deferred = self._deferred, None
            self._start_asgi_task(*deferred)

    # requests and their responses

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Starts the next request, or defers it until its body is complete."""
        if self._client is None and self._forwarded is None and not self._enter_forwarded(cycle):
            self._refuse(_too_many_connections())
        elif cycle.more_body:
            self._deferred = cycle, app
        else:
            self._running = cycle
            cycle.waiting_for_100_continue = False
            self._await_client()
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Does what uvicorn does, but uses the shared timer for idle connections too."""
        self._running = None
        self.server_state.total_requests += 1
        if self._forwarded is not None:
            self._shared.leave(self._forwarded)
            self._forwarded = None
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            if self._deferred is not None:
                self._check_deferred()
        self._await_client()

    def _enter_forwarded(self, cycle: RequestResponseCycle) -> bool:
        chain = b",".join(value for name, value in cycle.scope["headers"] if name == b"x-forwarded-for")
        client = forwarded_client(chain.decode("latin-1"), self._limits.trusted_proxies)
        if client is None or not self._shared.enter(client):
            return client is None
        self._forwarded = client
        return True

    def _feed(self, part: bytes) -> None:
        self._head += len(part)
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade:  # no other protocol is supported: respond and close
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(Problem(400, "malformed_request", "this is not a request of HTTP/1.1"))
        if self._stage == IDLE:
            self._head = 0
        elif self._head >= MAX_HEAD_BYTES:
            detail = f"request line and headers may have at most {MAX_HEAD_BYTES:,} bytes"
            self._refuse(Problem(431, "headers_too_large", detail))

    def _await_rest(self) -> None:
        """Waits for the rest of an incomplete request."""
        if self._awaited_stage != self._stage:
            self._awaited_stage = self._stage
            if self._deferred is not None:
                self._check_deferred()
            self._await_client()
        if self._stage == BODY and not self._refused:
            self._shared.buffer(self, len(self.cycle.body))

    def _check_deferred(self) -> None:
        """Refuses a body that will be too large; sends 100 Continue if the client waits for it."""
        if _content_length(self.cycle) > MAX_BODY_BYTES:
            self._refuse(body_too_large())
        elif self.cycle.waiting_for_100_continue:
            self.cycle.waiting_for_100_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # timeouts of the client

    def _await_client(self) -> None:
        if self.flow.write_paused or self.transport.is_closing():
            self._shared.wait(self, WRITE_SECONDS)
        elif self._running is not None:
            self._shared.stop_waiting(self)
        elif self._refused:
            self._shared.wait(self, LINGER_SECONDS)
        elif self._stage == IDLE:
            self._shared.wait(self, self.timeout_keep_alive)
        else:
            limits = self._limits
            self._shared.wait(self, limits.header_seconds if self._stage == HEAD else limits.body_seconds)

    def expired(self) -> None:
        if self._running is not None and not self.flow.write_paused:
            return  # the client waits for the response
        if self._refused or self._stage == IDLE or self.flow.write_paused or self.transport.is_closing():
            self.shed()
        else:
            self._refuse(Problem(408, "request_timeout", "the request did not come in time"))

    def shed(self) -> None:
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        self._deferred = None
        self._shared.stop_waiting(self)
        if self.buffered:
            self._shared.buffer(self, 0)
            self.cycle.body = bytearray()

    def _refuse(self, problem: Problem) -> None:
        """Sends the problem and closes. Discards what the client still sends, so that it can read the response."""
        if self._refused:
            return
        self._refused = True
        self._discarded = MAX_DISCARDED_BYTES if problem.status == 413 else 2 * MAX_HEAD_BYTES
        REFUSED.labels(problem.code).inc()
        self._forget()
        if self._running is not None:  # a response now would belong to the earlier request
            self._running.keep_alive = False
            return
        response = problem.response()
        headers = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        lines = [STATUS_LINE[problem.status], *(b"%s: %s\r\n" % header for header in headers), b"\r\n"]
        self.transport.write(b"".join([*lines, bytes(response.body)]))
        self.transport.write_eof()
        self._await_client()


class Connections:
    """Shared by all connections of a server: counts them per address and times out slow clients.

    Above `most` open connections, it closes the one that has waited for its client the longest. Only the event
    loop may use it. A request that arrives in one piece costs nothing here: it needs no timer.
    """

    def __init__(self, settings: EdgeSettings) -> None:
        self.settings = settings
        self.most = _raised_limit() - RESERVED_DESCRIPTORS
        self._open: Counter[str] = Counter()
        self._buffered = 0
        # In the order in which the waiting began; the value is the deadline by the event loop's clock.
        self._waiting: dict[BoundedProtocol, float] = {}
        self._loop: asyncio.AbstractEventLoop
        self._sweep: asyncio.TimerHandle | None = None

    def enter(self, client: str) -> bool:
        """Counts one more connection of this client; returns False at its limit."""
        if self._open[client] >= self.settings.connections_per_address:
            return False
        self._open[client] += 1
        return True

    def leave(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def wait(self, connection: BoundedProtocol, seconds: float) -> None:
        """Gives the client `seconds` from now on."""
        if self._sweep is None:
            self._loop = asyncio.get_running_loop()
            self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire)
        self._waiting.pop(connection, None)
        self._waiting[connection] = self._loop.time() + seconds

    def stop_waiting(self, connection: BoundedProtocol) -> None:
        """The server no longer waits for this client."""
        self._waiting.pop(connection, None)

    def buffer(self, connection: BoundedProtocol, size: int) -> None:
        """Records the size of an unfinished body. Sheds the oldest ones if all together are too large."""
        self._buffered += size - connection.buffered
        connection.buffered = size
        if self._buffered > MAX_BUFFERED_BYTES:
            for buffering in [client for client in self._waiting if client.buffered]:
                buffering.shed()
                if self._buffered <= MAX_BUFFERED_BYTES:
                    return

    def make_room(self, count: int) -> None:
        """Closes one connection if `count` open connections are too many."""
        if count > self.most and self._waiting:
            next(iter(self._waiting)).shed()

    def _expire(self) -> None:
        now = self._loop.time()
        for connection, until in list(self._waiting.items()):
            if until <= now:
                connection.expired()
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire) if self._waiting else None


def _content_length(cycle: RequestResponseCycle) -> int:
    return next((int(value) for name, value in cycle.scope["headers"] if name == b"content-length"), 0)


def _too_many_connections() -> Problem:
    detail = "this address has as many connections as it may have"
    return Problem(429, "too_many_connections", detail, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


@lru_cache(maxsize=4096)
def client_of(address: str, trusted: Networks) -> str | None:
    """Returns the client that an address counts for; None for a trusted proxy. For IPv6 this is the 64-bit network,
    because one client owns all of it. Text that is no address counts as itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    parsed = (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed
    if any(parsed in network for network in trusted):
        return None
    return f"{int(parsed) >> 64:x}::/64" if isinstance(parsed, IPv6Address) else str(parsed)


def forwarded_client(chain: str, trusted: Networks) -> str | None:
    """Returns the last address in `X-Forwarded-For` that is no trusted proxy; clients can forge earlier ones."""
    for address in reversed(chain.split(",")):
        client = client_of(address.strip(), trusted) if address.strip() else None
        if client is not None:
            return client
    return None


def _raised_limit() -> int:
    """Raises the limit of open files as far as allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit
