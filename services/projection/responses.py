"""Answers as HTTP responses: ETag, Daybook-Stale, and what there is to say of an entity that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from starlette.responses import Response

from services.edge.http import Problem
from services.kernel.read_model import Connection, ReadModel
from services.projection.stale import Stale, key_parked, stale, stale_keys

STALE = "Daybook-Stale"


class Row(Protocol):
    """A row of a page."""

    stale: Stale


def response(body: Any, version: int | None = None) -> Response:
    """`version` becomes the ETag; a body that is stale says so in a header too."""
    headers = {} if version is None else {"ETag": f'"{version}"'}
    if (old := getattr(body, "stale", None)) is not None:
        headers[STALE] = old
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")


async def page_response(
    connection: Connection,
    model: ReadModel[Any],
    page: Any,
    rows: Mapping[str, Row] = MappingProxyType({}),
) -> Response:
    """A page is stale where any key of the read model waits, and so are those of its `rows`, by key."""
    page.stale = await stale(connection, model)
    for key in await stale_keys(connection, model, [*rows]) if page.stale else ():
        rows[key].stale = page.stale
    return response(page)


def missing(kind: str, key: str, model: ReadModel[Any], old: Stale, at: str = "") -> Problem:
    """404, or 503 where the log has it and the read model cannot show it."""
    if old is not None:
        return key_parked(model, key, f"{kind} {key}")
    return Problem(404, f"{kind}_not_found", f"there is no {kind} {key}" + (f" as of {at}" if at else ""))
