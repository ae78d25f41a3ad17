"""What every process of the shop serves beside its work: health, metrics, JSON logs; and how it is served."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import structlog
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from structlog.tracebacks import ExceptionDictTransformer

from services.edge.http import exception_handlers

GRACE_SECONDS = 15
KEEP_ALIVE_SECONDS = 75  # longer than a client's pool or a proxy usually keeps an idle connection

log = structlog.get_logger(__name__)

NotReady = Callable[[], str | None]
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def configure_logging(process: str, level: str = "INFO") -> None:
    """JSON lines on stdout: process, level, timestamp, event, correlation_id. Never bodies, never locals."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        lambda _logger, _method, entry: {"process": process, **entry},
        structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
    ]
    render = structlog.processors.JSONRenderer(serializer=_json)
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    libraries = logging.StreamHandler(sys.stdout)
    libraries.setFormatter(structlog.stdlib.ProcessorFormatter(render, foreign_pre_chain=shared))
    logging.basicConfig(level=logging.WARNING, handlers=[libraries], force=True)


def _json(entry: dict[str, Any], **_: Any) -> str:
    return msgspec.json.encode(entry, enc_hook=repr).decode()


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

    return [
        Route("/health/live", live),
        Route("/health/ready", ready),
        Route("/metrics", metrics),
    ]


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
