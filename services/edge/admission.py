"""Refuses requests before routing: for another host, from another site's pages, with a body that is not JSON.

This is ASGI middleware, so it works in front of every framework.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from services.edge.problems import REFUSED, Problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
_JSON = re.compile(rb'application/(?:json|[a-z0-9.-]+\+json)(?: *; *charset="?utf-8"?)? *', re.IGNORECASE)


class Admission:
    """Accepts only requests whose `Host` is one of `hosts` (names without ports)."""

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
        same_site = origin is None or urlsplit(origin).netloc.lower() == headers.get(b"host", b"").lower()
    if not same_site:
        raise Problem(403, "cross_site", "a page of another site may not change anything here")


def _check_body(headers: Mapping[bytes, bytes]) -> None:
    if headers.get(b"content-length") == b"0":
        return
    encoding = headers.get(b"content-encoding", b"identity")
    if not _is_json(headers.get(b"content-type", b"")) or encoding.lower() != b"identity":
        detail = "a body must be application/json, in UTF-8 and without Content-Encoding"
        raise Problem(415, "unsupported_media_type", detail, headers={"Accept": "application/json"})
