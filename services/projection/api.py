"""The query API: the routes of every read model, and their data sources."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI
from prometheus_client import REGISTRY
from starlette.requests import Request
from starlette.responses import Response

from services.edge.app import application
from services.edge.middleware import AddedHeaders
from services.edge.problems import Problem
from services.edge.server import end_process
from services.projection import status
from services.projection.engine.database import QUERY_SECONDS, QUERY_SETTINGS, pool, require_migrated
from services.projection.engine.lag import Lag, LagMetrics
from services.projection.engine.read_model import DATABASE_AWAY
from services.projection.engine.settings import QuerySettings
from services.projection.engine.visibility import Notifications, Visibility
from services.projection.read_models import READ_MODELS
from services.projection.reads import ReadSources
from services.projection.status import SiteStatus

log = structlog.get_logger(__name__)


def routers() -> Sequence[APIRouter]:
    """Returns the `router` of each read model's `api` module, and the route of their positions."""
    names = (f"{__package__}.{model.name}.api" for model in READ_MODELS)
    return [*(import_module(name).router for name in names if find_spec(name)), status.router]


def query_app(settings: QuerySettings) -> FastAPI:
    """Creates the application; it connects when it starts."""
    notifications = Notifications()
    lag = Lag(settings.kafka, READ_MODELS)
    site_status = SiteStatus(settings.site, lag.seconds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pool(
            settings.database_url, settings.database_connections, QUERY_SETTINGS, QUERY_SECONDS
        ) as connections:
            async with connections.acquire() as connection:
                await require_migrated(connection, READ_MODELS)
            visibility = Visibility(connections, notifications)
            app.state.sources = ReadSources(settings, connections, visibility, lag)
            loops = (
                notifications.listen(settings.database_url),
                site_status.follow(connections),
                lag.follow(connections),
            )
            following = [_watched(loop) for loop in loops]
            REGISTRY.register(metrics := LagMetrics(lag))
            yield
            REGISTRY.unregister(metrics)
            for task in following:
                task.cancel()

    def not_ready() -> str | None:
        if not notifications.listening:
            return "not connected to PostgreSQL"
        if site_status.silent() > QUERY_SECONDS:
            return "PostgreSQL does not respond"
        return lag.stalled

    app = application(
        routers(),
        not_ready,
        lifespan,
        title="Daybook queries",
        about="What the shop knows, folded from its events. Money is exact decimals, times are UTC.",
    )
    app.add_middleware(AddedHeaders, headers=lambda _: site_status.headers())
    for kind in DATABASE_AWAY:
        app.add_exception_handler(kind, _database_unavailable)
    return app


def _watched(loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Starts a loop. If it fails, the process ends: it would go on with what the loop saw last."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            end_process(f"{task.get_coro()} failed: {error!r}")

    task = asyncio.create_task(loop)
    task.add_done_callback(ended)
    return task


async def _database_unavailable(request: Request, error: Exception) -> Response:
    log.warning("no response from PostgreSQL", path=request.url.path, error=repr(error))
    detail = "the read models cannot be read at the moment; nothing is lost, repeat the request"
    return Problem(503, "database_unavailable", detail, headers={"Retry-After": "1"}).response()
