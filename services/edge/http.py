"""HTTP's vocabulary for every API of the shop: problems (RFC 9457), bodies, preconditions.

Whatever goes wrong leaves as `application/problem+json` with a stable `code`. Raise `Problem` anywhere below
a handler; `exception_handlers()` turns it, and every error of the framework, into an answer.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

MAX_BODY_BYTES = 1024 * 1024
MAX_DISCARDED_BYTES = 8 * MAX_BODY_BYTES
RETRY_AFTER_SECONDS = 1

Body = TypeVar("Body")
Handler = Callable[[Request, Any], Awaitable[Response]]

_VISIBLE = re.compile(rb"[\x21-\x7e]{1,255}")
_ENTITY_TAG = re.compile(rb'"([0-9]{1,18})"')
_AT_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED_FIELD = re.compile(r"(?:unknown|required) field `([^`]*)`")

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


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises `Problem` 413 above `MAX_BODY_BYTES`."""
    event = await receive()
    chunk: bytes = event.get("body", b"")
    if not event.get("more_body") and len(chunk) <= MAX_BODY_BYTES:
        return chunk
    chunks, size = [chunk], len(chunk)
    while event.get("more_body") and size <= MAX_DISCARDED_BYTES:
        event = await receive()
        chunk = event.get("body", b"")
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            chunks.append(chunk)
    if size > MAX_BODY_BYTES:
        # a client that is still sending would not read the answer: a little more is taken and thrown away
        detail = f"a body may have at most {MAX_BODY_BYTES:,} bytes"
        raise Problem(413, "body_too_large", detail, headers={"Connection": "close"})
    return b"".join(chunks)


def parse_body(decoder: msgspec.json.Decoder[Body], body: bytes) -> Body:
    """The body as the decoder's Struct. Raises `Problem` 422 naming the field, or saying what is not JSON."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        field, detail = _locate(str(error))
        raise invalid(field, detail) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(422, "malformed_json", str(error)) from error


def _locate(text: str) -> tuple[str, str]:
    """Field and detail from msgspec's words: "Expected `int` >= 1 - at `$.lines[2].quantity`"."""
    at, named = _AT_PATH.search(text), _NAMED_FIELD.search(text)
    path = at[1] if at else ""
    detail = text[: at.start()] if at else text
    if named is not None:
        path = f"{path}.{named[1]}" if path else named[1]
    return path, detail


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
