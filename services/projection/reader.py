"""Shared by the routes of all read models: a connection that sees the token's write, and response headers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Protocol, TypeAlias

import asyncpg
from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.middleware.gzip import GZipMiddleware

from services.edge.problems import Problem, invalid
from services.kernel.record.tokens import MalformedToken, Token
from services.projection.engine.database import query_connection
from services.projection.engine.lag import Lag
from services.projection.engine.read_model import Connection, ReadModel
from services.projection.engine.settings import QuerySettings
from services.projection.engine.staleness import Stale, key_parked, stale, stale_keys
from services.projection.engine.visibility import Visibility
from services.projection.parameters import ConsistencyToken, Wait

COMPRESSED_BYTES = 1000


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


class StaleRow(Protocol):
    """A row of a page."""

    stale: Stale


class Page(Protocol):
    """A page is stale if any key of its read model is parked: rows may be old or missing."""

    stale: Stale


@dataclass(frozen=True)
class Reader:
    """Reads the read models for one request and sets its response headers."""

    sources: ReadSources
    response: Response
    token: Token | None
    wait: float

    @asynccontextmanager
    async def connection(self, model: ReadModel[Any]) -> AsyncIterator[Connection]:
        """Yields a connection that sees the token's write in the read model. Raises `Problem` otherwise."""
        if self.token is not None:
            await self.sources.visibility.visible(self.token, [model], self.wait)
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
        page: Page,
        rows: Mapping[str, StaleRow] = MappingProxyType({}),
    ) -> None:
        """Marks the page, and those of its `rows` (by key) that are stale."""
        page.stale = await stale(connection, model)
        for key in await stale_keys(connection, model, [*rows]) if page.stale else ():
            rows[key].stale = page.stale
        self.label(page.stale)


async def reader(
    sources_: AppSources, response: Response, token: ConsistencyToken = None, wait: Wait = None
) -> Reader:
    """A dependency: declares the token and how long to wait for its write. Raises `Problem` 422."""
    seconds = min(
        sources_.settings.wait_seconds if wait is None else wait, sources_.settings.max_wait_seconds
    )
    try:
        return Reader(sources_, response, None if token is None else Token.decode(token), seconds)
    except MalformedToken as error:
        raise invalid("Consistency-Token", str(error)) from error


Reads: TypeAlias = Annotated[Reader, Depends(reader)]


class ReadRoute(APIRoute):
    """Compresses large responses without an ETag. With one, the compressed response would be another representation
    under the same strong tag (RFC 9110, 8.8.3.3)."""

    def get_route_handler(self) -> Callable[[Request], Any]:
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
