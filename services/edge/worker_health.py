"""A worker's health and metrics over HTTP, in a separate thread, with the limits of the edge."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from services.kernel.worker.worker_metrics import WorkerMetrics

if TYPE_CHECKING:
    import uvicorn

STOP_SECONDS = 2.0


@contextmanager
def serve_health(metrics: WorkerMetrics, host: str, port: int) -> Iterator[None]:
    """Serves until the end of the block. Raises OSError if the port is in use."""
    listener = socket.create_server((host, port))
    running: list[uvicorn.Server] = []
    thread = threading.Thread(target=_serve, args=(metrics, listener, running), name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        for server in running:
            server.should_exit = True
        thread.join(STOP_SECONDS)


def _serve(metrics: WorkerMetrics, listener: socket.socket, running: list[uvicorn.Server]) -> None:
    # Imported here: the worker's start does not wait for a web framework.
    import uvicorn

    from services.edge.app import application
    from services.edge.server import server_config

    app = application(
        (), metrics.why_not_ready, not_live=metrics.why_not_alive, status=lambda: metrics.status
    )
    server = uvicorn.Server(server_config(app, *listener.getsockname()[:2]))
    running.append(server)
    server.run(sockets=[listener])
