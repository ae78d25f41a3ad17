"""ASGI middleware of the APIs: what happens to every request before its route, and to its response."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, lru_cache

import structlog
from prometheus_client import Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.edge.problems import REFUSED, Problem
from services.kernel.record.envelope import uuid7

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CORRELATION_HEADER = b"x-correlation-id"
CORRELATION_PATTERN = r"^[\x21-\x7e]{1,64}$"
COMMAND_KEY = "idempotency_key"
"""In the state of a request that became a command: its key."""
SECONDS = Histogram("daybook_request_seconds", "From the request to its response", ["route", "status"])

_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
_JSON = re.compile(rb'application/(?:json|[a-z0-9.-]+\+json)(?: *; *charset="?utf-8"?)? *', re.IGNORECASE)
_CORRELATION = re.compile(CORRELATION_PATTERN.encode())


class Admission:
    """Refuses requests for another host, from another site's pages, or with a body that is not JSON. `hosts`: the
    names, without ports, that `Host` may have."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope, dict(scope["headers"]))
            except Problem as problem:
                REFUSED.labels(problem.code).inc()
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"")
        if host or scope["http_version"] != "1.0":
            repeated = len(headers) < len(scope["headers"])
            if not (name := _name(host)) or (repeated and _count(scope, b"host") > 1):
                raise Problem(400, "malformed_host", "one Host header with a name or an address")
            if name not in self._hosts:
                raise Problem(421, "wrong_host", "this process does not serve that Host")
        if scope["method"] not in SAFE_METHODS:
            _check_site(headers)
        if b"content-length" in headers or b"transfer-encoding" in headers:
            _check_body(headers)


@lru_cache(maxsize=256)
def _name(host: bytes) -> bytes:
    """Returns the name in a Host header, in lower case and without the port; empty if it is malformed."""
    match = _HOST.fullmatch(host)
    return match[1].lower() if match else b""


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    return _JSON.fullmatch(content_type) is not None


def _count(scope: Scope, header: bytes) -> int:
    return sum(name == header for name, _ in scope["headers"])


def _check_site(headers: Mapping[bytes, bytes]) -> None:
    """Refuses a request that a browser sends from a page of another site."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        same_site = site in (b"same-origin", b"none")
    else:
        same_site = origin is None or origin.lower().partition(b"://")[2] == headers.get(b"host", b"").lower()
    if not same_site:
        raise Problem(403, "cross_site", "a page of another site may not change anything here")


def _check_body(headers: Mapping[bytes, bytes]) -> None:
    if headers.get(b"content-length") == b"0":
        return
    encoding = headers.get(b"content-encoding", b"identity")
    if not _is_json(headers.get(b"content-type", b"")) or encoding.lower() != b"identity":
        detail = "a body must be application/json, in UTF-8 and without Content-Encoding"
        accepted = {"Accept": "application/json", "Accept-Encoding": "identity"}
        raise Problem(415, "unsupported_media_type", detail, headers=accepted)


class ReadMethods:
    """Treats HEAD as GET without a body, and returns 304 if the client already has the
    representation (RFC 9110, 9.3.2 and 13.1.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        without_body = scope["method"] == "HEAD"
        requested_tags = Headers(scope=scope).get("if-none-match", "")

        async def send_conditionally(event: Message) -> None:
            nonlocal without_body
            if event["type"] == "http.response.start" and event["status"] == 200 and requested_tags:
                headers = MutableHeaders(raw=event["headers"])
                storable = "no-store" not in headers.get("cache-control", "")
                if storable and _matches(headers.get("etag", ""), requested_tags):
                    without_body = True
                    for name in ("content-length", "content-type"):
                        del headers[name]
                    event["status"] = 304
            elif event["type"] == "http.response.body" and without_body:
                event = {**event, "body": b""}
            await send(event)

        await self._app({**scope, "method": "GET"}, receive, send_conditionally)


def _matches(tag: str, requested_tags: str) -> bool:
    """Tells whether If-None-Match names the tag; the comparison is weak."""
    tags = [part.strip().removeprefix("W/") for part in requested_tags.split(",")]
    return bool(tag) and (tags == ["*"] or tag in tags)


class AddedHeaders:
    """Adds to every response what `headers` returns for its request, whose scope has a `state`."""

    def __init__(self, app: ASGIApp, headers: Callable[[Scope], Iterable[tuple[bytes, bytes]]]) -> None:
        self._app, self._headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})

        async def send_with_headers(event: Message) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event.get("headers", ()), *self._headers(scope)]
            await send(event)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class CorrelationMiddleware:
    """Adds a write's correlation id to logs and response, and measures its duration."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # Looking up a labelled metric takes longer than observing it.
        self._seconds = cache(lambda route, status: SECONDS.labels(route, status))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        correlation_id = _correlation_id(scope["headers"])
        scope.setdefault("state", {})["correlation_id"] = correlation_id
        structlog.contextvars.bind_contextvars(correlation_id=correlation_id)

        async def send_correlated(event: Message) -> None:
            if event["type"] == "http.response.start":
                event["headers"].append((CORRELATION_HEADER, correlation_id.encode()))
                if (route := scope.get("route")) is not None:
                    self._seconds(route.path, event["status"]).observe(time.perf_counter() - started)
            await send(event)

        try:
            await self._app(scope, receive, send_correlated)
        except Exception:  # its response, 500, is made outside of all middleware
            if (route := scope.get("route")) is not None:
                self._seconds(route.path, 500).observe(time.perf_counter() - started)
            raise


class ProvenResponses:
    """The last check before the response to a command leaves: of two sites, a replaced one acknowledges nothing.

    `unavailable` returns the problem that takes the place of the response, or None. A response that claims nothing
    about the command (5xx), or to a request that became no command, leaves unchecked.
    """

    def __init__(self, app: ASGIApp, unavailable: Callable[[str], Problem | None]) -> None:
        self._app, self._unavailable = app, unavailable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        replaced = False

        async def send_proven(event: Message) -> None:
            nonlocal replaced
            if event["type"] == "http.response.start" and event["status"] < 500:
                key = scope.get("state", {}).get(COMMAND_KEY)
                if key is not None and (problem := self._unavailable(key)) is not None:
                    replaced = True
                    await problem.response()(scope, receive, send)
            if not replaced:
                await send(event)

        await self._app(scope, receive, send_proven)


def _correlation_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == CORRELATION_HEADER and _CORRELATION.fullmatch(value):
            return value.decode()
    return uuid7()
