"""Builds the HTTP applications of each process: an API with problem responses and offline docs; health and metrics."""

import asyncio
import importlib.resources
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from html import escape
from math import inf
from typing import Any

import fastapi_swagger
from fastapi import APIRouter, Depends, FastAPI, params
from fastapi.dependencies.models import Dependant
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response

from services.edge.identity import TOKENS, Identity
from services.edge.limits import RATE_LIMITED, Limits, rate_headers
from services.edge.middleware import AddedHeaders, ReadMethods
from services.edge.problems import EDGE, HANDLERS, ProblemDocument, documented, invalid
from services.edge.settings import LimitSettings, TokenSettings

NotReady = Callable[[], str | None]
Status = Callable[[], Mapping[str, object]]
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
_FRONT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><link rel="icon" href="/docs/favicon-32x32.png">
<style>
 body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 44rem; margin: 4rem auto; padding: 0 1rem }}
 body {{ color: #1c2430; background: #fff }} a {{ color: #0b57a4 }} code {{ color: #555 }}
 li {{ margin: .3rem 0 }}
</style>
<h1>{title}</h1><p>{about}</p>
<ul>
<li><a href="/docs">Try it in the browser</a> <code>/docs</code></li>
<li><a href="/openapi.json">OpenAPI 3.1 document</a> <code>/openapi.json</code></li>
<li><a href="/health/ready">Is it ready?</a> <code>/health/ready</code></li>
</ul></html>
"""


def application(
    routers: Sequence[APIRouter],
    not_ready: NotReady,
    lifespan: Lifespan | None = None,
    *,
    title: str = "",
    about: str = "",
    max_pending: float = inf,
) -> FastAPI:
    """Returns an application with `routers`; with a `title`, also the API document.

    Every error becomes a problem response. `not_ready` returns the reason or None; clients learn only whether there is
    one, the rest is on another listener (`serve_api`). `max_pending`: commands in progress (`Limits`).
    """
    app = _bare([*routers, _one_word(not_ready)], title or "Daybook", about, lifespan)
    if title:
        app.router.routes.extend(pages(app).routes)
    app.state.not_ready = not_ready
    app.state.identity = Identity(TokenSettings())
    app.state.limits = Limits(LimitSettings(), max_pending)
    app.add_middleware(AddedHeaders, headers=rate_headers)
    return app


def health_application(
    not_ready: NotReady,
    *routers: APIRouter,
    not_live: NotReady = lambda: None,
    status: Status = lambda: {"status": "ready"},
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """Returns an application for a listener that clients do not reach, with health, metrics and `routers`.

    `not_ready` and `not_live` return the reason or None; `status` is the body of `/health/ready` when the process is
    ready.
    """
    return _bare([*routers, operations(not_ready, not_live, status)], "Daybook", "", lifespan)


def _bare(routers: Sequence[APIRouter], title: str, about: str, lifespan: Lifespan | None) -> FastAPI:
    app = FastAPI(
        title=title,
        description=about,
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the redirect would name whatever Host the client sent
        lifespan=lifespan,
        exception_handlers=HANDLERS,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # structlog and Prometheus are enough
    )
    app.add_middleware(ReadMethods)
    # Adds the routes themselves: an included router costs each request 12 µs.
    app.router.routes.extend(route for router in routers for route in router.routes)
    return app


def api_router(*tags: str, dependencies: Sequence[params.Depends] = (), **options: Any) -> APIRouter:
    """Returns a router whose routes refuse unknown parameters and document the problems that all can return.
    `dependencies` come first: `scopes(…)` among them. `options` are the options of FastAPI's router."""
    secured = any(isinstance(dependency, params.Security) for dependency in dependencies)
    return APIRouter(
        tags=[*tags],
        dependencies=[*dependencies, Depends(refuse_unknown_parameters)],
        responses=documented(EDGE, *([TOKENS, RATE_LIMITED] if secured else [])),
        generate_unique_id_function=lambda route: route.name,
        **options,
    )


def _one_word(not_ready: NotReady) -> APIRouter:
    """Adds `/health/live` and `/health/ready` for load balancers: a status code and one word."""
    router = api_router(include_in_schema=False)

    @router.get("/health/live")
    async def live() -> Response:
        return PlainTextResponse("live")

    @router.get("/health/ready")
    async def ready() -> Response:
        return PlainTextResponse("unavailable", 503) if not_ready() else PlainTextResponse("ready")

    return router


def operations(not_ready: NotReady, not_live: NotReady, status: Status) -> APIRouter:
    """Adds `/health/live`, `/health/ready` (503 with the reason, or 200 with `status`) and `/metrics`."""
    router = api_router(include_in_schema=False)

    @router.get("/health/live")
    async def live() -> Response:
        return _health_response(not_live(), "not live", {"status": "live"})

    @router.get("/health/ready")
    async def ready() -> Response:
        return _health_response(not_ready(), "not ready", status())

    @router.get("/metrics")
    async def metrics() -> Response:
        # Some metrics are measured on request, and a broker can be slow.
        exposition = await asyncio.to_thread(generate_latest)
        return Response(exposition, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return router


def _health_response(reason: str | None, failed: str, status: Mapping[str, object]) -> Response:
    return JSONResponse({"status": failed, "reason": reason} if reason else status, 503 if reason else 200)


def pages(app: FastAPI) -> APIRouter:
    """Adds `/`, `/docs` and `/openapi.json`; they need no network."""
    router = api_router(include_in_schema=False)
    assets = importlib.resources.files(fastapi_swagger) / "resources"

    @router.get("/")
    async def front() -> Response:
        return HTMLResponse(_FRONT.format(title=escape(app.title), about=escape(app.description)))

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return JSONResponse(openapi_document(app))

    @router.get("/docs")
    async def docs() -> Response:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title=app.title,
            swagger_js_url="/docs/swagger-ui-bundle.js",
            swagger_css_url="/docs/swagger-ui.css",
            swagger_favicon_url="/docs/favicon-32x32.png",
        )

    for name in _ASSETS:
        router.add_api_route(f"/docs/{name}", _file(str(assets / name)))
    return router


def _file(path: str) -> Callable[[], Any]:
    async def asset() -> Response:
        return FileResponse(path)

    return asset


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document; builds it once."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        # The responses refer to this schema. FastAPI does not add it, because their media type is different.
        problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.setdefault("components", {}).setdefault("schemas", {})[ProblemDocument.__name__] = problem
        app.openapi_schema = schema
    return app.openapi_schema


async def refuse_unknown_parameters(request: Request) -> None:
    """Raises `Problem` 422 for a query parameter that the route does not declare or that is repeated."""
    if request.scope["query_string"]:
        check_parameters(request)


def check_parameters(request: Request) -> None:
    """Does the same for a request that has a query string."""
    route, parameters = request.scope["route"], request.query_params
    declared = {*_query_parameters(route.dependant)}
    for name in parameters:
        if name not in declared:
            hint = f"there are: {', '.join(sorted(declared))}" if declared else "this route has none"
            raise invalid(name, f"no such parameter; {hint}", "unknown_parameter")
        if len(parameters.getlist(name)) > 1:
            raise invalid(name, "is given more than once")


def _query_parameters(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from _query_parameters(dependency)
