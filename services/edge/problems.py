"""Problems (RFC 9457): the error responses of every API.

Every error is returned as `application/problem+json` with a stable `code`. Code below a handler raises
`Problem`; `HANDLERS` turn it, and every error of the framework, into a response. A command without
an outcome raises `Unavailable`.
"""

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
from starlette.types import Scope

from services.kernel.log.control import Control

RETRY_AFTER_SECONDS = 1
MAX_BODY_BYTES = 1024 * 1024
LOGGED = frozenset({401, 403, 404, 429})  # who was refused is logged

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
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.extra = extra

    def response(self) -> Response:
        document = _document(self.status, self.code)
        if self.detail:
            document["detail"] = self.detail
        body = msgspec.json.encode(document | self.extra)
        return Response(body, self.status, dict(self.headers or {}), MEDIA_TYPE)


def _document(status: int, code: str) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    return {"type": f"urn:daybook:problem:{code}", "title": title, "status": status, "code": code}


def invalid(field: str, detail: str, code: str = "invalid_field") -> Problem:
    """Returns a 422 that names the field: `lines[2].quantity`, `Idempotency-Key`."""
    return Problem(422, code, detail, field=field)


def body_too_large() -> Problem:
    detail = f"a body may have at most {MAX_BODY_BYTES:,} bytes"
    return Problem(413, "body_too_large", detail, headers={"Connection": "close"})


SITE_PROBLEMS = {
    "passive": ("site_passive", 503, "this site is passive: the other one accepts commands"),
    "quiesced": ("site_quiesced", 503, "this site is being switched over"),
    "takeover": ("site_taking_over", 503, "this site is taking over"),
    "unproven": ("site_unproven", 503, "this site does not know yet whether it is the only active one"),
    "storage": ("storage_full", 507, "the disk of this site is nearly full; reads go on"),
}


class Unavailable(EdgeError):
    """There is no outcome: the command may have been executed or not. A retry under the same id is safe."""

    code = "unanswered"
    status = 503
    members: Mapping[str, str] = {}
    """Further members of the problem."""


class Overloaded(Unavailable):
    """Too many commands wait; this one was not sent."""

    code = "overloaded"


class OutcomeUnknown(Unavailable):
    """The command was sent, but its outcome did not arrive in time."""

    code = "outcome_unknown"


class SiteUnavailable(Unavailable):
    """This site accepts no commands now; the command was not sent. `code` is one of `SITE_PROBLEMS`."""

    def __init__(self, control: Control, peer_url: str = "", unproven: str = "") -> None:
        """`peer_url`: this API at the other site. The peer of a passive site is the active one. `unproven`: why an
        active site that accepts commands cannot know that it was not replaced."""
        state = (
            control.role.role if control.role.role != "active" else "unproven" if unproven else control.held
        )
        self.code, self.status, reason = SITE_PROBLEMS[state]
        if unproven and state == "unproven":
            reason = f"{reason}: {unproven}"
        if state == "passive" and peer_url:
            self.members = {"active_site": peer_url}
            reason = f"{reason}, at {peer_url}"
        super().__init__(reason)


class LogUnavailable(Unavailable):
    """The log did not accept the command in time, or this gateway is not ready."""

    code = "log_unavailable"


class PeerUnavailable(Unavailable):
    """The other site's log cannot be read, so nobody could see that it has the outcome. The command was not sent."""

    code = "peer_unavailable"


class BeyondLossBudget(Unavailable):
    """The other site lacks too much of what was acknowledged here. The command was not sent."""

    code = "beyond_loss_budget"


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
    documents = {(code, document.status): document for kind in kinds for code, document in kind.items()}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in sorted({document.status for document in documents.values()}):
        codes = {code: document for (code, of), document in documents.items() if of == status}
        schema = {
            "allOf": [{"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}],
            "properties": {"code": {"enum": sorted(codes)}, "status": {"const": status}},
        }
        examples = {
            code: {"summary": document.about, "value": _document(status, code) | dict(document.members)}
            for code, document in codes.items()
        }
        responses[status] = {
            "description": "; ".join(f"`{code}`: {document.about}" for code, document in codes.items()),
            "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}},
        }
    return responses


async def _problem_raised(request: Request, error: Problem) -> Response:
    if error.status in LOGGED:
        log_refusal(request.scope, error)
    return error.response()


def log_refusal(scope: Scope, error: Problem) -> None:
    """Logs who was refused what, for a file that is kept for long: no token, no key, no content, no id of an entity."""
    route, principal = scope.get("route"), scope.get("state", {}).get("principal")
    log.info(
        "request_refused",
        principal=getattr(principal, "subject", ""),
        method=scope["method"],
        route=getattr(route, "path", ""),
        status=error.status,
        code=error.code,
    )


async def _request_invalid(_: Request, error: RequestValidationError) -> Response:
    return invalid_request(error.errors()).response()


async def _framework_refused(_: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    detail = "" if error.detail == status.phrase else error.detail
    headers = dict(error.headers or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"  # every GET route accepts HEAD: see `ReadMethods`
    return Problem(status, status.name.lower(), detail, headers=headers).response()


async def _client_disconnected(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=400)  # the client is gone, and nothing was done


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, method=request.method, exc_info=error)
    # This response passes no middleware, which would add the id.
    correlation_id = request.scope.get("state", {}).get("correlation_id")
    headers = {"X-Correlation-Id": correlation_id} if correlation_id else None
    detail = "the failure is in the log of this process"
    return Problem(500, "internal_error", detail, headers=headers).response()


HANDLERS: dict[Any, Handler] = {
    Problem: _problem_raised,
    RequestValidationError: _request_invalid,
    HTTPException: _framework_refused,
    ClientDisconnect: _client_disconnected,
    Exception: _unexpected,
}


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
