"""Problems (RFC 9457): the error responses of every API.

Every error is returned as `application/problem+json` with a stable `code`. Code below a handler raises
`Problem`; `exception_handlers()` turns it, and every error of the framework, into a response.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
import structlog
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

RETRY_AFTER_SECONDS = 1

REFUSED = Counter("daybook_http_refused", "Requests refused before any route", ["code"])
MEDIA_TYPE = "application/problem+json"

Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]

# Replaces a pattern in messages for people. A module that defines a pattern adds its words.
IN_WORDS: dict[str, str] = {}

log = structlog.get_logger(__name__)


class EdgeError(Exception):
    """Everything that the edge raises; the package's docstring shows the tree."""


class Problem(EdgeError):
    """A response that is not a success. `extra` becomes further members of the body."""

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
    """Returns a problem document: `type`, `title`, `status`, `code`, `detail` if not empty, and `extra`."""
    document: dict[str, Any] = {"type": f"urn:daybook:problem:{code}", "title": title, "status": status}
    document["code"] = code
    if detail:
        document["detail"] = detail
    document.update(extra)
    return Response(
        msgspec.json.encode(document),
        status,
        headers=dict(headers or {}),
        media_type=MEDIA_TYPE,
    )


def invalid(field: str, detail: str, code: str = "invalid_field") -> Problem:
    """Returns a 422 that names the field: `lines[2].quantity`, `Idempotency-Key`."""
    return Problem(422, code, detail, field=field)


class ProblemDocument(BaseModel):
    """RFC 9457. Branch on `code`; `field` names what a 422 is about."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="`urn:daybook:problem:` and the code.")
    title: str
    status: int
    code: str = Field(pattern="^[a-z0-9_]+$", description="Stable: what a program decides by.")
    detail: str = Field("", description="For people; its words may change.")
    field: str = Field("", description="`lines[2].quantity`, `Idempotency-Key`.")


class Code(NamedTuple):
    """Documents a problem code; `members` are further members of its example."""

    status: int
    about: str
    members: Mapping[str, Any] = {}


# Problems of every operation, before its route runs; and those of operations with a body.
EDGE = {
    "malformed_request": Code(400, "not HTTP/1.1"),
    "malformed_host": Code(400, "no `Host`, or several"),
    "method_not_allowed": Code(405, "the path has no such method"),
    "request_timeout": Code(408, "the request did not come in time; the connection is closed"),
    "wrong_host": Code(421, "the process does not serve this `Host`"),
    "unknown_parameter": Code(422, "there is no such query parameter", {"field": "colour"}),
    "invalid_field": Code(422, "a value is wrong; `field` names it", {"field": "limit"}),
    "too_many_connections": Code(429, "the address has as many connections as it may have"),
    "headers_too_large": Code(431, "request line and headers have more than 32 KiB"),
    "internal_error": Code(500, "a fault of the shop; its log names it"),
}
EDGE_OF_BODIES = {
    "cross_site": Code(403, "a page of another site may not change anything"),
    "body_too_large": Code(413, "the body has more than 1 MiB"),
    "unsupported_media_type": Code(415, "the body is not `application/json` in UTF-8"),
    "malformed_json": Code(422, "the body is not JSON"),
}


def documented(*kinds: Mapping[str, Code]) -> dict[int | str, dict[str, Any]]:
    """Returns FastAPI's `responses`: every code under its status, with an example."""
    codes = {code: code_ for kind in kinds for code, code_ in kind.items()}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in sorted({code_.status for code_ in codes.values()}):
        codes_of_status = {code: code_ for code, code_ in codes.items() if code_.status == status}
        schema = {
            "allOf": [{"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}],
            "properties": {"code": {"enum": sorted(codes_of_status)}, "status": {"const": status}},
        }
        examples = {
            code: {"summary": code_.about, "value": _example(code, code_)}
            for code, code_ in codes_of_status.items()
        }
        responses[status] = {
            "description": "; ".join(f"`{code}`: {code_.about}" for code, code_ in codes_of_status.items()),
            "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}},
        }
    return responses


def _example(code: str, code_: Code) -> dict[str, Any]:
    title = HTTPStatus(code_.status).phrase
    document = {"type": f"urn:daybook:problem:{code}", "title": title, "status": code_.status, "code": code}
    return {**document, **code_.members}


def exception_handlers() -> dict[Any, Handler]:
    """Returns the `exception_handlers` of an application."""
    return {
        Problem: _problem_raised,
        RequestValidationError: _request_invalid,
        HTTPException: _framework_refused,
        ClientDisconnect: _client_disconnected,
        Exception: _unexpected,
    }


async def _problem_raised(_: Request, error: Problem) -> Response:
    return error.response()


async def _request_invalid(_: Request, error: RequestValidationError) -> Response:
    return invalid_request(error.errors()).response()


async def _framework_refused(_: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    detail = "" if error.detail == status.phrase else error.detail
    headers = dict(error.headers or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"  # every GET route accepts HEAD: see `ReadMethods`
    return problem(status, status.name.lower(), status.phrase, detail, headers=headers)


async def _client_disconnected(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=400)  # the client is gone, and nothing was done


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, method=request.method, exc_info=error)
    return problem(
        500, "internal_error", "Internal Server Error", "the failure is in the log of this process"
    )


def invalid_request(errors: Sequence[Any]) -> Problem:
    """Returns the first of pydantic's validation errors; a location begins with body, path, query or header."""
    error = errors[0]
    location, kind = error["loc"], error["type"]
    if kind == "json_invalid" or (kind == "missing" and location == ("body",)):
        detail = error.get("ctx", {}).get("error", "there is no body")
        return Problem(422, "malformed_json", f"the body is not JSON: {detail}")
    return invalid(_field(location[1:]), _detail(error))


def _field(path: Sequence[str | int]) -> str:
    """Renders `("lines", 2, "quantity")` as `lines[2].quantity`."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return name.removeprefix(".")


def _detail(error: Any) -> str:
    """Returns a message for people: names no pattern and no Python type."""
    match error["type"]:
        case "string_pattern_mismatch":
            return IN_WORDS.get(error["ctx"]["pattern"], str(error["msg"]))
        case "extra_forbidden":
            return "there is no such field"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "an object is expected"
        case "list_type":
            return "an array is expected"
        case "value_error":
            return str(error["ctx"]["error"])
        case _:
            return str(error["msg"])
