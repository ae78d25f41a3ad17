"""What every process of the shop serves beside its work: health, metrics; and how it is served."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
import structlog
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from services.edge.http import exception_handlers, without_parameters
from services.kernel.collector import keep_what_is_here

GRACE_SECONDS = 15
KEEP_ALIVE_SECONDS = 75  # longer than a client's pool or a proxy usually keeps an idle connection

log = structlog.get_logger(__name__)

NotReady = Callable[[], str | None]
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def operations(not_ready: NotReady) -> Sequence[BaseRoute]:
    """`/health/live`, `/health/ready` (503 with the reason `not_ready` gives) and `/metrics`."""

    async def live(_: Request) -> Response:
        return Response(b'{"status":"live"}', media_type="application/json")

    async def ready(_: Request) -> Response:
        reason = not_ready()
        status = {"status": "ready"} if reason is None else {"status": "not ready", "reason": reason}
        body = msgspec.json.encode(status)
        return Response(body, 200 if reason is None else 503, media_type="application/json")

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    answers = {"/health/live": live, "/health/ready": ready, "/metrics": metrics}
    return [Route(path, without_parameters(endpoint)) for path, endpoint in answers.items()]


def application(
    routes: Sequence[BaseRoute], not_ready: NotReady, lifespan: Lifespan | None = None
) -> Starlette:
    """Routes with the operations beside them; every error leaves as a problem."""
    return Starlette(
        routes=[*routes, *operations(not_ready)],
        exception_handlers=exception_handlers(),
        lifespan=lifespan,
    )


def end_process(reason: str) -> None:
    """End as if told to: what is under way gets its time, the supervisor starts a new process."""
    log.error("ending", reason=reason)
    os.kill(os.getpid(), signal.SIGTERM)


def serve(app: Starlette, host: str, port: int) -> None:
    """Until SIGTERM or SIGINT: then no new connection, what is under way gets `GRACE_SECONDS`.

    In another thread than the main one it serves as long as the process lives.
    """
    keep_what_is_here()
    uvicorn.run(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
