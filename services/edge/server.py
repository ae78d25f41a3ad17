"""Serves HTTP in every process: within limits, until SIGTERM or SIGINT."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from services.edge.app import health_application
from services.edge.middleware import Admission
from services.edge.protocol import BoundedProtocol, Connections
from services.edge.settings import EdgeSettings
from services.kernel.collector import keep_what_is_here
from services.kernel.exit_codes import EXIT_FAILED, EXIT_STOPPED
from services.kernel.threads import end_with_threads

GRACE_SECONDS = 15
EVERY_ADDRESS = {"0.0.0.0", "::"}
KEEP_ALIVE_SECONDS = 75  # longer than a client's pool or a proxy usually keeps an idle connection

log = structlog.get_logger(__name__)


class _HealthServer(uvicorn.Server):
    """Leaves signals to what it stands beside."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def health_listener(app: ASGIApp, host: str, port: int) -> AsyncIterator[None]:
    """Serves health and metrics during the block, in its event loop: a loop that stands still does not respond. A port
    in use ends the process."""
    server = _HealthServer(server_config(app, host, port))
    serving = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """Treats a signal as a request to stop; uvicorn would raise it again at the end. Serves in the block `beside`."""

    stop_requested = False

    def __init__(self, config: uvicorn.Config, beside: AbstractAsyncContextManager[None]) -> None:
        super().__init__(config)
        self._beside, self._running = beside, AsyncExitStack()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:  # then there is no shutdown either
            await self._running.enter_async_context(self._beside)

    async def shutdown(self, sockets: Any = None) -> None:
        await self._running.aclose()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stop_requested = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.handle_exit)
        yield


_stopped_itself = threading.Event()


def end_process(reason: str) -> None:
    """Stops the process because of an error: running requests may finish, the supervisor starts a new process."""
    log.error("ending", reason=reason)
    _stopped_itself.set()
    os.kill(os.getpid(), signal.SIGTERM)


def server_config(app: ASGIApp, host: str, port: int) -> uvicorn.Config:
    """Returns the configuration of a server with the limits of `EdgeSettings`."""
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


def serve_api(app: FastAPI, clients: tuple[str, int], health: tuple[str, int]) -> int:
    """Serves an API (`application`) on two listeners: for clients, and for health and metrics. As `serve` does."""
    return serve(app, *clients, health_listener(health_application(app.state.not_ready), *health))


def serve(app: ASGIApp, host: str, port: int, beside: AbstractAsyncContextManager[None] | None = None) -> int:
    """Serves until SIGTERM or SIGINT, then gives running requests `GRACE_SECONDS`. Returns the exit code. Signals
    stop it only in the main thread."""
    keep_what_is_here()
    end_with_threads(end_process)
    server = _Server(server_config(app, host, port), beside or nullcontext())
    try:
        server.run()
    except SystemExit:  # uvicorn's exit code for a failed start has another meaning here
        return EXIT_FAILED
    return EXIT_STOPPED if server.stop_requested and not _stopped_itself.is_set() else EXIT_FAILED
