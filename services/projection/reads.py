"""What the routes of all read models share: parameters, the parts of the API document, connections, headers."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar

import asyncpg
import msgspec
from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter, WithJsonSchema
from starlette.middleware.gzip import GZipMiddleware

from services.edge.identity import KEYS_UNAVAILABLE, caller, declared_scopes
from services.edge.problems import IN_WORDS, Code, Problem, documented, invalid
from services.edge.requests import TAGS_PATTERN, decimal_text
from services.kernel.record.envelope import MalformedToken, Token, format_time, parse_time
from services.projection.engine.database import query_connection
from services.projection.engine.lag import Lag
from services.projection.engine.read_model import Connection, ReadModel
from services.projection.engine.settings import QuerySettings
from services.projection.engine.visibility import Stale, Visibility, key_parked, stale, stale_keys

PAGE = 50
MAX_PAGE = 500
COMPRESSED_BYTES = 1000
# PostgreSQL's texts hold every character but one
NAME_PATTERN = r"^[^\x00]*$"
SEGMENT_PATTERN = r"^[^/\x00]+$"
CURSOR_PATTERN = r"^[A-Za-z0-9_-]+={0,2}$"
TOKEN_PATTERN = r"^[A-Za-z0-9_-]+$"
# Not \d, which matches the digits of every script; nor fromisoformat alone, which takes any separator.
WHOLE_PATTERN = r"^-?[0-9]{1,18}$"
DURATION_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})?(ms|s)?$"
DAY_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# in a query, a plus sign that was not percent-encoded arrives as a space
_DAY_OR_TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+ -][0-9]{2}:[0-9]{2}))?"
)
MOMENT_PATTERN = rf"^{_DAY_OR_TIME}$"
AS_OF_PATTERN = rf"^(version:[1-9][0-9]{{0,17}}|{_DAY_OR_TIME})$"
_MOMENT_IN_WORDS = "a day (2010-12-01) or a time with its offset (2010-12-01T08:26:00Z)"
_NO_CURSOR = "not a cursor of this query: take `next` of the page before"
IN_WORDS |= {
    NAME_PATTERN: "no name holds a zero character",
    SEGMENT_PATTERN: "no name holds a zero character",
    CURSOR_PATTERN: _NO_CURSOR,
    TOKEN_PATTERN: "not a consistency token",
    AS_OF_PATTERN: f"version:<n> with n from 1, or {_MOMENT_IN_WORDS}",
}

Keys = TypeVar("Keys")


def whole(text: str) -> int:
    return int(_matched(WHOLE_PATTERN, text, "a whole number"))


def seconds(text: str) -> float:
    """Parses a duration: `2`, `0.5`, `2s` or `500ms`."""
    duration = _matched(DURATION_PATTERN, text, "a duration such as 2, 0.5, 2s or 500ms")
    return float(duration.rstrip("ms")) / (1000 if duration.endswith("ms") else 1)


def moment(text: str) -> int:
    """Returns micros UTC of an RFC 3339 time, or of the start of a day."""
    value = _matched(MOMENT_PATTERN, text, _MOMENT_IN_WORDS).replace(" ", "+")
    try:
        if "T" in value:
            return parse_time(value)
        start = datetime.combine(date.fromisoformat(value), datetime.min.time(), UTC)
        return int(start.timestamp()) * 1_000_000
    except (ValueError, OverflowError):  # well-formed, but not a day or hour
        raise ValueError(_MOMENT_IN_WORDS) from None


def day(text: str) -> date:
    try:
        return date.fromisoformat(_matched(DAY_PATTERN, text, ""))
    except ValueError:
        raise ValueError("a day such as 2010-12-01") from None


def _matched(pattern: str, text: str, in_words: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError(in_words)
    return text


def to_cursor(keys: Any) -> str:
    """Encodes the keys of a page's last row, opaque to the client."""
    return urlsafe_b64encode(msgspec.json.encode(keys)).rstrip(b"=").decode()


def from_cursor(cursor: str | None, shape: TypeAdapter[Keys]) -> Keys | None:
    """Returns the keys in a cursor. Raises `Problem` 422 for a malformed cursor or one of another query."""
    if cursor is None:
        return None
    try:
        return shape.validate_json(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        raise invalid("cursor", _NO_CURSOR) from None


def page_of(rows: list[Any], limit: int, *keys: str) -> tuple[list[Any], str | None]:
    """Returns the first `limit` rows, and the cursor of their last row's `keys` if more rows follow."""
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], to_cursor([rows[limit - 1][key] for key in keys])


def _text(pattern: str, **more: Any) -> WithJsonSchema:
    """Documents a value that is parsed from text."""
    return WithJsonSchema({"type": "string", "pattern": pattern, **more})


Number: TypeAlias = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
"""In a cursor: a version, units, or micros of a time that PostgreSQL knows."""
Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
Duration: TypeAlias = Annotated[float, BeforeValidator(seconds), _text(DURATION_PATTERN, examples=["2s"])]
Moment: TypeAlias = Annotated[int, BeforeValidator(moment), _text(MOMENT_PATTERN, examples=["2010-12-01"])]
Day: TypeAlias = Annotated[date, BeforeValidator(day)]

Limit: TypeAlias = Annotated[
    int, Field(ge=1, le=MAX_PAGE), BeforeValidator(whole), Query(description="Rows of a page.")
]
Cursor: TypeAlias = Annotated[
    str | None, Query(pattern=CURSOR_PATTERN, description="`next` of the page before.")
]
Country: TypeAlias = Annotated[Name | None, Query(description="The customer's country.", examples=["France"])]
ConsistencyToken: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Consistency-Token",
        pattern=TOKEN_PATTERN,
        description="A write's token: the response is at least as new as that write, for the token's own "
        "stream.",
    ),
]
Wait: TypeAlias = Annotated[
    Duration | None, Query(description="How long to wait for the token's write: `2`, `0.5s`, `500ms`.")
]
OrderId: TypeAlias = Annotated[
    str, Path(pattern=SEGMENT_PATTERN, description="The order.", examples=["536365"])
]

Money: TypeAlias = Annotated[
    int,
    PlainSerializer(decimal_text),
    WithJsonSchema({"type": "string", "pattern": r"^-?[0-9]+\.[0-9]{2,6}$"}),
]
"""Micros; an exact decimal in the response."""
Time: TypeAlias = Annotated[
    int, PlainSerializer(format_time), WithJsonSchema({"type": "string", "format": "date-time"})
]
"""Micros UTC; RFC 3339 in the response."""

WHEN = "2010-12-01T08:26:00.000000Z"
RECORDED = "2026-03-01T12:00:00.000000Z"
NEXT = "WzEyOTExOTIwMDAwMDAwMDAsIjUzNjM2NSJd"
UNAVAILABLE = {
    "database_unavailable": Code(503, "the read models cannot be read at the moment; repeat the request"),
    **KEYS_UNAVAILABLE,
}
READS = {
    "lost_in_failover": Code(410, "the token's write was lost in a failover"),
    "not_yet_visible": Code(503, "the token's write is not visible yet; repeat with the same token"),
    "key_parked": Code(503, "the token's write, or the entity, waits for an operator"),
    "stream_forked": Code(503, "another event has the token's version; an operator decides between them"),
    **UNAVAILABLE,
}
_CONDITION = {
    "name": "If-None-Match",
    "in": "header",
    "description": "The ETag of an earlier response: 304 if the entity is still at that version.",
    "schema": {"type": "string", "pattern": TAGS_PATTERN},
}


def _header(about: str, required: bool = False, **schema: Any) -> dict[str, Any]:
    return {"description": about, "required": required, "schema": {"type": "string", **schema}}


_SITE = {
    "Daybook-Site": _header("The site that responds.", required=True, pattern="^[A-Za-z0-9_.-]+$"),
    "Daybook-Role": _header("Its role, where there are two sites.", enum=["active", "passive"]),
    "Daybook-Lag-Seconds": _header(
        "How far the response may be behind the active site's log; absent if unknown.",
        pattern=r"^[0-9]+\.[0-9]{3}$",
    ),
}
_STALE = {
    "Daybook-Stale": _header(
        "`parked` if an event of the entity (on a page: of any entity) could not be applied and later "
        "events wait behind it. Absent otherwise.",
        const="parked",
    ),
    "Cache-Control": _header("`no-store` if the response is stale.", const="no-store"),
}
_ETAG = {"ETag": _header("The entity's version, quoted: use it in If-Match.", True, pattern='^"[0-9]+"$')}


def of_entity(kind: str, about: str, example: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the responses and If-None-Match of a route for one entity."""
    unchanged = {"description": "It is still at the version of If-None-Match", "headers": {**_ETAG, **_SITE}}
    success = _success(about, example, {**_ETAG, **_STALE, **_SITE})
    return {
        "responses": {200: success, 304: unchanged, **documented(not_found(kind), READS)},
        "openapi_extra": {"parameters": [_CONDITION]},
    }


def of_page(about: str, example: Mapping[str, Any], *codes: Mapping[str, Code]) -> dict[str, Any]:
    """Returns the responses of a route for a page."""
    return {"responses": {200: _success(about, example, {**_STALE, **_SITE}), **documented(*codes, READS)}}


def of_status(about: str, example: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the responses of a route about the read models themselves."""
    return {"responses": {200: _success(about, example, _SITE), **documented(UNAVAILABLE)}}


def not_found(kind: str) -> dict[str, Code]:
    return {f"{kind}_not_found": Code(404, f"there is no such {kind}")}


def _success(about: str, example: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"example": dict(example)}}
    return {"description": about, "headers": dict(headers), "content": content}


@dataclass(frozen=True)
class ReadSources:
    """The application's data sources; it creates them at start as `app.state.sources`."""

    settings: QuerySettings
    pool: asyncpg.Pool[Any]
    visibility: Visibility
    lag: Lag


async def sources(request: Request) -> ReadSources:
    """A dependency."""
    sources_: ReadSources = request.app.state.sources
    return sources_


AppSources: TypeAlias = Annotated[ReadSources, Depends(sources)]


class MayBeStale(Protocol):
    """A page or one of its rows. A page is stale if any key of its read model is parked: rows may be missing."""

    stale: Stale


@dataclass(frozen=True)
class Reader:
    """Reads the read models for one request and sets its response headers."""

    sources: ReadSources
    response: Response
    token: Token | None
    wait: float
    customer: str | None = None
    """The only customer whose orders the caller may read; None: all."""

    def allows(self, customer: str | None) -> bool:
        """Returns whether the caller may read that customer's orders."""
        return self.customer in (None, customer)

    @asynccontextmanager
    async def connection(self, model: ReadModel[Any]) -> AsyncIterator[Connection]:
        """Yields a connection that sees the token's write. Raises `Problem` otherwise."""
        if self.token is not None:
            await self.sources.visibility.visible(self.token, model, self.wait, self.customer)
        async with query_connection(self.sources.pool) as connection:
            yield connection

    def label(self, staleness: Stale, version: int | None = None) -> None:
        """Sets the headers of staleness, and the version as ETag. A stale response must not be stored: it changes
        without a new version."""
        if version is not None:
            self.response.headers["ETag"] = f'"{version}"'
        if staleness is not None:
            self.response.headers["Daybook-Stale"] = staleness
            self.response.headers["Cache-Control"] = "no-store"

    async def label_page(
        self,
        connection: Connection,
        model: ReadModel[Any],
        page: MayBeStale,
        rows: Mapping[str, MayBeStale] = MappingProxyType({}),
    ) -> None:
        """Marks the page, and those of its `rows` (by key) that are stale."""
        page.stale = await stale(connection, model)
        for key in await stale_keys(connection, model, [*rows]) if page.stale else ():
            rows[key].stale = page.stale
        self.label(page.stale)


async def reader(
    request: Request,
    sources_: AppSources,
    response: Response,
    token: ConsistencyToken = None,
    wait: Wait = None,
) -> Reader:
    """A dependency: declares the token and how long to wait for its write. Raises `Problem` 422."""
    settings = sources_.settings
    longest = min(settings.wait_seconds if wait is None else wait, settings.max_wait_seconds)
    try:
        decoded = None if token is None else Token.decode(token)
    except MalformedToken as error:
        raise invalid("Consistency-Token", str(error)) from error
    return Reader(sources_, response, decoded, longest, caller(request).customer("orders:read.all"))


Reads: TypeAlias = Annotated[Reader, Depends(reader)]


class ReadRoute(APIRoute):
    """Must declare its scopes. Compresses large responses without an ETag: with one, the compressed response would be
    another representation under the same strong tag (RFC 9110, 8.8.3.3)."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        declared_scopes(self.dependant)
        handle = super().get_route_handler()

        async def handle_compressed(request: Request) -> Any:
            response = await handle(request)
            if "etag" in response.headers:
                return response
            return GZipMiddleware(response, COMPRESSED_BYTES, compresslevel=5)

        return handle_compressed


def missing(kind: str, key: str, model: ReadModel[Any], staleness: Stale, at: str | None = None) -> Problem:
    """Returns a 404, or a 503 if the log has the entity but the read model does not."""
    if staleness is not None:
        return key_parked(model, key, f"{kind} {key}")
    return Problem(404, f"{kind}_not_found", f"there is no {kind} {key}" + (f" as of {at}" if at else ""))
