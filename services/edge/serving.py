"""What every process of the shop serves beside its work: health, metrics; and how it is served."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from types import FrameType

import msgspec
import structlog
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from services.edge.admission import Admission
from services.edge.connections import Connections
from services.edge.http import exception_handlers, without_parameters
from services.edge.protocol import BoundedProtocol
from services.edge.settings import EdgeSettings
from services.kernel.collector import keep_what_is_here
from services.kernel.exit_codes import EXIT_FAILED, EXIT_STOPPED

GRACE_SECONDS = 15
EVERY_ADDRESS = {"0.0.0.0", "::"}
KEEP_ALIVE_SECONDS = 75  # longer than a client's pool or a proxy usually keeps an idle connection

log = structlog.get_logger(__name__)

NotReady = Callable[[], str | None]
Status = Callable[[], Mapping[str, object]]
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def operations(
    not_ready: NotReady, not_live: NotReady = lambda: None, status: Status = lambda: {"status": "ready"}
) -> Sequence[BaseRoute]:
    """`/health/live`, `/health/ready` (503 with the reason that is given, else `status`) and `/metrics`."""

    async def live(_: Request) -> Response:
        return _told(not_live(), "not live", {"status": "live"})

    async def ready(_: Request) -> Response:
        return _told(not_ready(), "not ready", status())

    async def metrics(_: Request) -> Response:
        # some are measured when they are asked for, and a broker may take its time
        found = await asyncio.to_thread(generate_latest)
        return Response(found, headers={"Content-Type": CONTENT_TYPE_LATEST})

    answers = {"/health/live": live, "/health/ready": ready, "/metrics": metrics}
    return [Route(path, without_parameters(endpoint)) for path, endpoint in answers.items()]


def _told(reason: str | None, failed: str, status: Mapping[str, object]) -> Response:
    body = msgspec.json.encode({"status": failed, "reason": reason} if reason else status)
    return Response(body, 503 if reason else 200, media_type="application/json")


def application(
    routes: Sequence[BaseRoute],
    not_ready: NotReady,
    lifespan: Lifespan | None = None,
    *,
    not_live: NotReady = lambda: None,
    status: Status = lambda: {"status": "ready"},
) -> Starlette:
    """Routes with the operations beside them; every error leaves as a problem."""
    app = Starlette(
        routes=[*routes, *operations(not_ready, not_live, status)],
        exception_handlers=exception_handlers(),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # the redirect would name whatever Host the client sent
    return app


class _Server(uvicorn.Server):
    """A signal is a request to stop, not the cause of death: uvicorn would raise it again at the end."""

    told_to_stop = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.told_to_stop = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.handle_exit)
        yield


_ended_itself = threading.Event()


def end_process(reason: str) -> None:
    """End because of an error: what is under way gets its time, the supervisor starts a new process."""
    log.error("ending", reason=reason)
    _ended_itself.set()
    os.kill(os.getpid(), signal.SIGTERM)


def server_config(app: ASGIApp, host: str, port: int) -> uvicorn.Config:
    """How an application is served: within the limits of `EdgeSettings`."""
    settings = EdgeSettings()
    return uvicorn.Config(
        Admission(app, {*settings.allowed_hosts, *({host} - EVERY_ADDRESS)}),
        host=host,
        port=port,
        loop="uvloop",
        http=partial(BoundedProtocol, Connections(settings)),  # type: ignore[arg-type] # made like a class
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def serve(app: ASGIApp, host: str, port: int) -> int:
    """Until SIGTERM or SIGINT: then no new connection, what is under way gets `GRACE_SECONDS`. The exit code.

    In another thread than the main one no signal ends it.
    """
    keep_what_is_here()
    server = _Server(server_config(app, host, port))
    try:
        server.run()
    except SystemExit:  # uvicorn's own code for a failed start means something else here
        return EXIT_FAILED
    return EXIT_STOPPED if server.told_to_stop and not _ended_itself.is_set() else EXIT_FAILED
