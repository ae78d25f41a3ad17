"""The parts that all reads share in the API document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from services.edge.fields import TAGS_PATTERN
from services.edge.problems import Code, documented

Money: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": r"^-?[0-9]+\.[0-9]{2,6}$"})]
"""An exact decimal."""
Time: TypeAlias = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC."""

WHEN = "2010-12-01T08:26:00.000000Z"
RECORDED = "2026-03-01T12:00:00.000000Z"
NEXT = "WzEyOTExOTIwMDAwMDAwMDAsIjUzNjM2NSJd"
UNAVAILABLE = {
    "database_unavailable": Code(503, "the read models cannot be read at the moment; repeat the request")
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
    return {
        "responses": {
            200: _success(about, example, {**_ETAG, **_STALE, **_SITE}),
            304: unchanged,
            **documented(not_found(kind), READS),
        },
        "openapi_extra": {"parameters": [_CONDITION]},
    }


def of_page(about: str, example: Mapping[str, Any], *codes: Mapping[str, Code]) -> dict[str, Any]:
    """Returns the responses of a route for a page."""
    return {
        "responses": {
            200: _success(about, example, {**_STALE, **_SITE}),
            **documented(*codes, READS),
        }
    }


def of_status(about: str, example: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the responses of a route about the read models themselves."""
    return {"responses": {200: _success(about, example, _SITE), **documented(UNAVAILABLE)}}


def not_found(kind: str) -> dict[str, Code]:
    return {f"{kind}_not_found": Code(404, f"there is no such {kind}")}


def _success(about: str, example: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"example": dict(example)}}
    return {"description": about, "headers": dict(headers), "content": content}
