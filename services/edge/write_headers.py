"""The headers of a write: idempotency key, precondition and correlation."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import cache
from typing import Annotated

import structlog
from fastapi import Header, Path
from prometheus_client import Histogram
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.edge.fields import ID_PATTERN, TAGS_PATTERN
from services.edge.problems import IN_WORDS, invalid
from services.kernel.record.envelope import uuid7
from services.kernel.worker.entity import ANY_VERSION, NO_VERSION

CORRELATION_HEADER = b"x-correlation-id"
SECONDS = Histogram("daybook_request_seconds", "From the request to its response", ["route", "status"])

_KEY_PATTERN = r"^[\x21-\x7e]{1,255}$"
CORRELATION_PATTERN = r"^[\x21-\x7e]{1,64}$"
# W3C Trace Context: version ff and ids of zeros alone are invalid, and an invalid header is ignored
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VERSION = re.compile(r'"([0-9]{1,18})"')
IN_WORDS |= {
    _KEY_PATTERN: "1 to 255 visible ASCII characters, no spaces",
}
_CORRELATION = re.compile(CORRELATION_PATTERN.encode())


class WriteHeaders(BaseModel):
    """The headers of every write."""

    model_config = ConfigDict(frozen=True)

    idempotency_key: Annotated[
        str | None,
        Field(
            alias="Idempotency-Key",
            pattern=_KEY_PATTERN,
            examples=["4711"],
            description="Scoped to the entity. A repeat with the same body within the retry window gets the "
            "same response, refusals and conflicts included; another body gets a 422.",
        ),
    ] = None
    if_match: Annotated[
        str | None,
        Field(
            alias="If-Match",
            pattern=TAGS_PATTERN,
            examples=['"3"'],
            description="Only if the entity is at this version: the ETag of an earlier response, in its "
            "quotes. `*`: only if the entity exists. A weak tag never matches (RFC 9110, 13.1.1).",
        ),
    ] = None
    correlation_id: Annotated[
        str | None,
        Field(
            alias="X-Correlation-Id",
            json_schema_extra={"pattern": CORRELATION_PATTERN},
            description="Copied to the events that follow; generated if absent or malformed.",
        ),
    ] = None
    traceparent: Annotated[
        str | None,
        Field(
            alias="traceparent",
            json_schema_extra={"pattern": "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"},
            description="W3C Trace Context, passed on; ignored if invalid.",
        ),
    ] = None


Headers = Annotated[WriteHeaders, Header()]
EntityId = Annotated[str, Path(pattern=ID_PATTERN, description=f"The id: {IN_WORDS[ID_PATTERN]}.")]


def traceparent(header: str | None) -> str:
    """Returns the trace of the request; empty if the header is absent or invalid."""
    return header if header is not None and _TRACEPARENT.fullmatch(header) else ""


def expected_version(if_match: str | None) -> int | None:
    """Returns the version that If-Match names: None, a number, `ANY_VERSION` or `NO_VERSION`. A weak tag matches
    nothing. Raises `Problem` 422 if it names several versions."""
    if if_match is None:
        return None
    if if_match == "*":
        return ANY_VERSION
    versions = {int(match[1]) for tag in if_match.split(",") if (match := _VERSION.fullmatch(tag.strip()))}
    if len(versions) > 1:
        raise invalid("If-Match", "one version, not several")
    return versions.pop() if versions else NO_VERSION


def require_once(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises `Problem` 422 for a repeated header that decides what the request means."""
    names = [name for name, _ in headers]
    if len(set(names)) < len(names):
        for name in ("Idempotency-Key", "If-Match"):
            if names.count(name.lower().encode()) > 1:
                raise invalid(name, "one line of it, not several")


class CorrelationMiddleware:
    """ASGI middleware: adds a write's correlation id to logs and response, and measures its duration."""

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

        await self._app(scope, receive, send_correlated)


def _correlation_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == CORRELATION_HEADER and _CORRELATION.fullmatch(value):
            return value.decode()
    return uuid7()
