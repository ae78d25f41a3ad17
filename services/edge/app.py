"""What every HTTP API of the shop is: FastAPI with problems, health, metrics, and pages without a network."""

from __future__ import annotations

import asyncio
import importlib.resources
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from html import escape
from typing import Any

import fastapi_swagger
from fastapi import APIRouter, Depends, FastAPI, params
from fastapi.dependencies.models import Dependant
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.edge.problems import EDGE, ProblemDocument, documented, exception_handlers, invalid

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
<li><a href="/metrics">Metrics for Prometheus</a> <code>/metrics</code></li>
</ul></html>
"""


def application(
    routers: Sequence[APIRouter],
    not_ready: NotReady,
    lifespan: Lifespan | None = None,
    *,
    title: str = "",
    about: str = "",
    not_live: NotReady = lambda: None,
    status: Status = lambda: {"status": "ready"},
) -> FastAPI:
    """The routes of `routers`, health and metrics; with a `title` also the document and its pages.

    Every error leaves as a problem. `not_ready` and `not_live` give the reason, or None; `status` is what
    `/health/ready` says otherwise.
    """
    app = FastAPI(
        title=title or "Daybook",
        description=about,
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the redirect would name whatever Host the client sent
        lifespan=lifespan,
        exception_handlers=exception_handlers(),
        telemetry={"tracing": False, "metrics": False, "logs": False},  # structlog and Prometheus are enough
    )
    app.add_middleware(ReadMethods)
    routers = [*routers, operations(not_ready, not_live, status), *([pages(app)] if title else [])]
    # their routes, not the routers: an included one would cost each request 12 µs
    app.router.routes.extend(route for router in routers for route in router.routes)
    return app


def api_router(*tags: str, dependencies: Sequence[params.Depends] = (), **options: Any) -> APIRouter:
    """For the routes of an `application`: they refuse unknown parameters and document what all may answer.

    `options` are those of FastAPI's router.
    """
    return APIRouter(
        tags=[*tags],
        dependencies=[Depends(refuse_unknown_parameters), *dependencies],
        responses=documented(EDGE),
        generate_unique_id_function=lambda route: route.name,
        **options,
    )


def operations(not_ready: NotReady, not_live: NotReady, status: Status) -> APIRouter:
    """`/health/live`, `/health/ready` (503 with the reason that is given, else `status`) and `/metrics`."""
    router = api_router(include_in_schema=False)

    @router.get("/health/live")
    async def live() -> Response:
        return _told(not_live(), "not live", {"status": "live"})

    @router.get("/health/ready")
    async def ready() -> Response:
        return _told(not_ready(), "not ready", status())

    @router.get("/metrics")
    async def metrics() -> Response:
        # some are measured when they are asked for, and a broker may take its time
        found = await asyncio.to_thread(generate_latest)
        return Response(found, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return router


def _told(reason: str | None, failed: str, status: Mapping[str, object]) -> Response:
    return JSONResponse({"status": failed, "reason": reason} if reason else status, 503 if reason else 200)


def pages(app: FastAPI) -> APIRouter:
    """`/`, `/docs` and `/openapi.json`, without any network."""
    router = api_router(include_in_schema=False)
    assets = importlib.resources.files(fastapi_swagger) / "resources"

    @router.get("/")
    async def front() -> Response:
        return HTMLResponse(_FRONT.format(title=escape(app.title), about=escape(app.description)))

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return JSONResponse(described(app))

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
        path = str(assets / name)
        router.add_api_route(f"/docs/{name}", _file(path))
    return router


def _file(path: str) -> Callable[[], Any]:
    async def asset() -> Response:
        return FileResponse(path)

    return asset


def described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        # the responses refer to it and FastAPI does not know it as theirs: their media type is another
        problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.setdefault("components", {}).setdefault("schemas", {})[ProblemDocument.__name__] = problem
        app.openapi_schema = schema
    return app.openapi_schema


async def refuse_unknown_parameters(request: Request) -> None:
    """Raises `Problem` 422 for a query parameter that the route does not know, or that is there twice."""
    if request.scope["query_string"]:
        check_parameters(request)


def check_parameters(request: Request) -> None:
    """The same where there is a query."""
    known, given = known_parameters(request.scope["route"]), request.query_params
    for name in given:
        if name not in known:
            there_are = f"there are: {', '.join(sorted(known))}" if known else "this route has none"
            raise invalid(name, f"no such parameter; {there_are}", "unknown_parameter")
        if len(given.getlist(name)) > 1:
            raise invalid(name, "stands more than once")


def known_parameters(route: APIRoute) -> frozenset[str]:
    """The names of the query parameters that a route's signature declares."""
    return frozenset(_names(route.dependant))


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for needed in dependant.dependencies:
        yield from _names(needed)


class ReadMethods:
    """ASGI middleware: HEAD is GET without a body, and 304 answers who has the representation already
    (RFC 9110, 9.3.2 and 13.1.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        without_body = scope["method"] == "HEAD"
        held = Headers(scope=scope).get("if-none-match", "")

        async def sending(event: Message) -> None:
            nonlocal without_body
            if event["type"] == "http.response.start" and event["status"] == 200 and held:
                headers = MutableHeaders(raw=event["headers"])
                storable = "no-store" not in headers.get("cache-control", "")
                if storable and _is_held(headers.get("etag", ""), held):
                    without_body = True
                    for name in ("content-length", "content-type"):
                        del headers[name]
                    event["status"] = 304
            elif event["type"] == "http.response.body" and without_body:
                event = {**event, "body": b""}
            await send(event)

        await self._app({**scope, "method": "GET"}, receive, sending)


def _is_held(tag: str, held: str) -> bool:
    """Whether If-None-Match names the tag; weak tags count as strong ones here."""
    tags = [each.strip().removeprefix("W/") for each in held.split(",")]
    return bool(tag) and (tags == ["*"] or tag in tags)
