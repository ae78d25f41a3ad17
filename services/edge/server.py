"""How every process of the shop serves HTTP: within limits, until it is told to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp

from services.edge.admission import Admission
from services.edge.connections import Connections
from services.edge.protocol import BoundedProtocol
from services.edge.settings import EdgeSettings
from services.kernel.collector import keep_what_is_here
from services.kernel.exit_codes import EXIT_FAILED, EXIT_STOPPED

GRACE_SECONDS = 15
EVERY_ADDRESS = {"0.0.0.0", "::"}
KEEP_ALIVE_SECONDS = 75  # longer than a client's pool or a proxy usually keeps an idle connection

log = structlog.get_logger(__name__)


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
