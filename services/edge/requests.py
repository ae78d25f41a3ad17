"""How the APIs read requests: the types of fields and headers, and the route that validates writes.

Patterns follow Rust's rules: `$` matches only the end of the text. Money is a decimal string on the wire and `int`
micros inside, never a float.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

import msgspec
from fastapi import Header, Path
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from services.edge.app import check_parameters
from services.edge.identity import authenticate, declared_scopes
from services.edge.middleware import CORRELATION_PATTERN
from services.edge.problems import IN_WORDS, MAX_BODY_BYTES, body_too_large, invalid
from services.kernel.worker.entities import ANY_VERSION, NO_VERSION

EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = 1_000_000
MAX_LINES = 1000
MAX_QUANTITY = 1_000_000
FUTURE_TOLERANCE_MICROS = 5_000_000  # clocks differ a little

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,63}$"
_TEXT_PATTERN = r"^[^\x00-\x1f\x7f]*$"
_CURRENCY_PATTERN = r"^[A-Z]{3}$"
_PRICE_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$"
_AMOUNT_PATTERN = r"^-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$"
_TAG = r'(W/)?"[!\x23-\x7e]*"'
TAGS_PATTERN = rf"^(\*|{_TAG}( *, *{_TAG})*)$"
_KEY_PATTERN = r"^[\x21-\x7e]{1,255}$"
_DECIMAL = "up to nine digits, and up to six behind the point"
IN_WORDS |= {
    TAGS_PATTERN: 'an entity tag as an ETag header gave it, such as "3", or *',
    ID_PATTERN: "up to 64 letters, digits and ._~- beginning with a letter or digit",
    _KEY_PATTERN: "1 to 255 visible ASCII characters, no spaces",
    _TEXT_PATTERN: "text without control characters",
    _CURRENCY_PATTERN: "three capital letters, such as GBP",
    _PRICE_PATTERN: f'an exact decimal of at least 0, such as "2.55": {_DECIMAL}',
    _AMOUNT_PATTERN: f'an exact decimal, such as "2.55" or "-2.55": {_DECIMAL}',
}
# W3C Trace Context: version ff and ids of zeros alone are invalid, and an invalid header is ignored
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VERSION = re.compile(r'"([0-9]{1,18})"')


class RequestBody(BaseModel):
    """A request body; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ChangeRequest(RequestBody):
    """A request body of a command to an entity that the path names."""

    def command(self, entity_id: str, now: int) -> Any:
        """`now` in micros UTC. Raises `Problem`."""
        raise NotImplementedError


def _rfc_3339(value: Any) -> datetime:
    """Parses a time and rounds it to micros. Stricter than pydantic, which accepts numbers too."""
    try:
        return msgspec.convert(value, _AWARE)
    except msgspec.ValidationError:
        raise ValueError("a time with its offset, such as 2010-12-01T08:26:00Z") from None


_AWARE = Annotated[datetime, msgspec.Meta(tz=True)]

Id: TypeAlias = Annotated[str, Field(pattern=ID_PATTERN)]
"""Up to 64 letters, digits and `._~-`, beginning with a letter or digit: safe in keys, paths and tokens."""
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=_TEXT_PATTERN)]
ShortText: TypeAlias = Annotated[str, Field(min_length=1, max_length=64, pattern=_TEXT_PATTERN)]
Currency: TypeAlias = Annotated[str, Field(pattern=_CURRENCY_PATTERN)]
Quantity: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MAX_QUANTITY)]
Price: TypeAlias = Annotated[str, Field(pattern=_PRICE_PATTERN)]
Amount: TypeAlias = Annotated[str, Field(pattern=_AMOUNT_PATTERN)]
Moment: TypeAlias = Annotated[
    AwareDatetime, BeforeValidator(_rfc_3339), WithJsonSchema({"type": "string", "format": "date-time"})
]


def occurred_at(value: datetime | None, now: int) -> int:
    """Returns business time in micros UTC: the value or `now`. Raises `Problem` if future or before 1970."""
    if value is None:
        return now
    micros = (value - EPOCH_START) // timedelta(microseconds=1)
    if micros > now + FUTURE_TOLERANCE_MICROS:
        raise invalid("occurred_at", "lies in the future")
    if micros < 0:
        raise invalid("occurred_at", "lies before 1970")
    return micros


def micros(text: str) -> int:
    """`"2.55"` → 2_550_000. The text has at most six decimals, as the request models' pattern demands."""
    whole, _, fraction = text.lstrip("-").partition(".")
    amount = int(whole) * MICROS + int(fraction.ljust(6, "0"))
    return -amount if text.startswith("-") else amount


def decimal_text(amount: int) -> str:
    """2_550_000 → `"2.55"`: the shortest exact decimal with at least two places."""
    whole, fraction = divmod(abs(amount), MICROS)
    digits = f"{fraction:06d}"
    return f"{'-' if amount < 0 else ''}{whole}.{digits[:2]}{digits[2:].rstrip('0')}"


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
    durability: Annotated[
        str | None,
        Field(
            alias="Durability",
            pattern="^both-sites$",
            examples=["both-sites"],
            description="Respond when the other site has the outcome too: then the loss of a site cannot lose it. "
            "202 if it was not seen there in time; the same Idempotency-Key waits again.",
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
        for name in ("Idempotency-Key", "If-Match", "Durability"):
            if names.count(name.lower().encode()) > 1:
                raise invalid(name, "one line of it, not several")


async def read_body(receive: Receive) -> bytes:
    """Returns the whole body. Raises `Problem` 413 above `MAX_BODY_BYTES`, `ClientDisconnect` if it is cut off."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(event.get("body", b""))
        more = event.get("more_body", False)
        size += len(chunks[-1])
        if size > MAX_BODY_BYTES:
            raise body_too_large()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class WriteRoute(APIRoute):
    """Validates the body directly from its bytes, in the model's compiled validator, and resolves no dependencies
    (docs/adr/0006) except the scopes: the caller is checked before the body is read. Raises TypeError without scopes.

    An endpoint takes the request, one body, one model of headers, and path or query parameters. Its signature is
    FastAPI's: the document is generated from it, and FastAPI's own route class serves the same endpoint.
    """

    def get_route_handler(self) -> Callable[[Request], Any]:
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        needed, signature = declared_scopes(self.dependant), _Signature(self.dependant)

        async def handle(request: Request) -> Response:
            principal = await authenticate(request, needed)
            raw = await read_body(request.receive)
            with request.app.state.limits.in_progress(principal):
                return await endpoint(**signature.arguments(request, raw))

        return handle


class _Signature:
    """An endpoint's parameters by their source, as FastAPI read them."""

    def __init__(self, dependant: Dependant) -> None:
        (self._body,), (self._headers,) = dependant.body_params, dependant.header_params
        self._body_validator = _model(self._body).__pydantic_validator__
        self._header_validator = _model(self._headers).__pydantic_validator__
        aliases = (info.alias or name for name, info in _model(self._headers).model_fields.items())
        self._header_names = {alias.lower().encode(): alias for alias in aliases}
        self._path, self._query = dependant.path_params, dependant.query_params
        self._request = dependant.request_param_name or "request"

    def arguments(self, request: Request, raw: bytes) -> dict[str, Any]:
        """Returns the endpoint's arguments. Raises `RequestValidationError` or `Problem` in FastAPI's order: not
        JSON, unknown parameters, path, query, headers, body."""
        body_errors: list[Any] = []
        values: dict[str, Any] = {self._request: request}
        try:
            values[self._body.name] = self._body_validator.validate_json(raw)
        except ValidationError as error:
            body_errors = _located(error, "body")
            if not raw or body_errors[0]["type"] == "json_invalid":
                raise RequestValidationError(body_errors) from error
        if request.scope["query_string"]:
            check_parameters(request)
        for field in self._path:
            values[field.name] = _validated(field, "path", request.path_params[field.alias])
        for field in self._query:
            text = request.query_params.get(field.alias) if request.scope["query_string"] else None
            values[field.name] = field.get_default() if text is None else _validated(field, "query", text)
        try:
            values[self._headers.name] = self._header_validator.validate_python(self._headers_of(request))
        except ValidationError as error:
            raise RequestValidationError(_located(error, "header")) from error
        if body_errors:
            raise RequestValidationError(body_errors)
        return values

    def _headers_of(self, request: Request) -> Mapping[str, str]:
        names = self._header_names
        return {
            names[name]: value.decode("latin-1") for name, value in request.scope["headers"] if name in names
        }


def _model(field: ModelField) -> type[BaseModel]:
    """Returns the model of a body or of headers. Raises TypeError if the parameter has another type."""
    model = field.field_info.annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"a write route does not support {field.name}: it is no model")
    return model


def _validated(field: ModelField, source: str, value: str) -> Any:
    result, errors = field.validate(value, loc=(source, field.alias))
    if errors:
        raise RequestValidationError(errors)
    return result


def _located(error: ValidationError, source: str) -> list[Any]:
    return [{**entry, "loc": (source, *entry["loc"])} for entry in error.errors(include_url=False)]
