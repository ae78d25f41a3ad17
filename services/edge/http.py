"""HTTP's vocabulary for every API of the shop: problems (RFC 9457), keys, preconditions.

Whatever goes wrong leaves as `application/problem+json` with a stable `code`. Raise `Problem` anywhere below
a handler; `exception_handlers()` turns it, and every error of the framework, into an answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from prometheus_client import Counter as Counters
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

RETRY_AFTER_SECONDS = 1

REFUSED = Counters("daybook_http_refused", "Requests refused before any route", ["code"])

Handler = Callable[[Request, Any], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]

_VISIBLE = re.compile(rb"[\x21-\x7e]{1,255}")
_ENTITY_TAG = re.compile(rb'"([0-9]{1,18})"')

log = structlog.get_logger(__name__)


class Problem(Exception):
    """An answer that is not a success. `extra` becomes further members of the body."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str = "",
        *,
        title: str = "",
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title or HTTPStatus(status).phrase
        self.headers = headers
        self.extra = extra

    def response(self) -> Response:
        return problem(self.status, self.code, self.title, self.detail, headers=self.headers, **self.extra)


def problem(
    status: int,
    code: str,
    title: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **extra: Any,
) -> Response:
    """A problem document: `type`, `title`, `status`, `code`, `detail` where there is one, and `extra`."""
    document: dict[str, Any] = {"type": f"urn:daybook:problem:{code}", "title": title, "status": status}
    document["code"] = code
    if detail:
        document["detail"] = detail
    document.update(extra)
    return Response(
        msgspec.json.encode(document),
        status,
        headers=dict(headers or {}),
        media_type="application/problem+json",
    )


def invalid(field: str, detail: str, code: str = "invalid_field") -> Problem:
    """422, naming the field: `lines[2].quantity`, `Idempotency-Key`."""
    return Problem(422, code, detail, field=field)


def known_parameters(given: QueryParams, *known: str) -> Mapping[str, str]:
    """The query's parameters. Raises `Problem` 422 for one that is not `known`, or is there twice."""
    for name in given:
        if name not in known:
            there_are = f"there are: {', '.join(sorted(known))}" if known else "this route has none"
            raise invalid(name, f"no such parameter; {there_are}", "unknown_parameter")
        if len(given.getlist(name)) > 1:
            raise invalid(name, "stands more than once")
    return given


def without_parameters(endpoint: Endpoint) -> Endpoint:
    """The endpoint, of a route that has no query parameters: it refuses all."""

    async def checked(request: Request) -> Response:
        known_parameters(request.query_params)
        return await endpoint(request)

    return checked


def exception_handlers() -> dict[Any, Handler]:
    """For `Starlette(exception_handlers=…)`."""
    return {Problem: _problem_raised, HTTPException: _framework_refused, Exception: _unexpected}


async def _problem_raised(_: Request, error: Problem) -> Response:
    return error.response()


async def _framework_refused(_: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    detail = "" if error.detail == status.phrase else error.detail
    return problem(status, status.name.lower(), status.phrase, detail, headers=error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, method=request.method, exc_info=error)
    return problem(
        500, "internal_error", "Internal Server Error", "the failure is in the log of this process"
    )


def require_once(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises `Problem` 422 where a header that decides what a request means is there twice."""
    names = Counter(name for name, _ in headers)
    for name in ("Idempotency-Key", "If-Match"):
        if names[name.lower().encode()] > 1:
            raise invalid(name, "one line of it, not several")


def idempotency_key(headers: Mapping[bytes, bytes]) -> str | None:
    """The client's key, if any. Raises `Problem` 422 unless it is 1 to 255 visible ASCII characters."""
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not _VISIBLE.fullmatch(key):
        raise invalid("Idempotency-Key", "1 to 255 visible ASCII characters, no spaces")
    return key.decode()


def expected_version(headers: Mapping[bytes, bytes]) -> int | None:
    """The version that If-Match demands, if any. Raises `Problem` 422 unless it is one strong entity tag."""
    demanded = headers.get(b"if-match")
    if demanded is None:
        return None
    tag = _ENTITY_TAG.fullmatch(demanded)
    if tag is None:
        raise invalid("If-Match", 'one entity tag as an ETag header gave it, such as "3"')
    return int(tag[1])
