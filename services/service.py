"""A service: one aggregate, its HTTP side and its worker. `python -m services.<name>.service api|worker`.

Its folder holds `domain/`, `process.py`, `api.py` and `service.py`, which declares it:

    ORDER = Service("order", order_decider, order_process, STATES, api_port=27401, health_port=27428, worker_port=27411)

    if __name__ == "__main__":
        raise SystemExit(ORDER.main())

Each part is imported when it runs: an API has no use for a worker's code, a worker none for a web framework.
"""

from __future__ import annotations

import argparse
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar, get_type_hints

from services.edge.json_logs import configure_logging
from services.edge.settings import ApiSettings
from services.kernel.model.decider import Command, Event, State
from services.kernel.model.process import Aggregate
from services.kernel.settings import ProcessSettings, WorkerSettings

if TYPE_CHECKING:
    import uvicorn

    from services.kernel.worker.worker_metrics import WorkerMetrics

STOP_SECONDS = 2.0

Settings = TypeVar("Settings", bound=ProcessSettings)


@dataclass(frozen=True, kw_only=True)
class Service(Aggregate[Command, State, Event]):
    """An aggregate and its two processes. The name is the folder's, and the first part of its topics' names.

    `api.py` in the folder has `create(settings)`, which returns the application; the annotation of `settings` is their
    class (without one: `ApiSettings`). The ports are those of the API, of the API's health and metrics, and of the
    worker's, unless DAYBOOK_HTTP_PORT and DAYBOOK_HEALTH_PORT name others.
    """

    api_port: int
    health_port: int
    worker_port: int

    def main(self) -> int:
        """Runs the part that the command line names. Returns the process's exit code."""
        parser = argparse.ArgumentParser(prog=f"python -m services.{self.name}.service")
        parser.add_argument("part", choices=["api", "worker"], help="the HTTP side, or the owner of a slot")
        match parser.parse_args().part:
            case "api":
                return self.run_api()
            case _:
                return self.run_worker()

    def run_api(self) -> int:
        """Serves HTTP until SIGTERM. Returns the exit code."""
        from services.edge.server import serve_api

        create = import_module(f"services.{self.name}.api").create
        kind: type[ApiSettings] = get_type_hints(create).get("settings", ApiSettings)
        settings = _read(kind, http_port=self.api_port, health_port=self.health_port)
        configure_logging(f"{self.name}-api", settings.log_level)
        clients = settings.http_host, settings.http_port
        return serve_api(create(settings), clients, (settings.health_host, settings.health_port))

    def run_worker(self) -> int:
        """Owns a slot until SIGTERM, and serves health and metrics meanwhile. Returns the exit code."""
        from services.kernel.worker.worker import run_worker
        from services.kernel.worker.worker_metrics import WorkerMetrics

        settings = _read(WorkerSettings, health_port=self.worker_port)
        configure_logging(f"{self.name}-worker", settings.log_level)
        metrics = WorkerMetrics(self.name)
        with serve_health(metrics, settings.health_host, settings.health_port):
            return run_worker(self, settings, metrics)


def _read(kind: type[Settings], **ports: int) -> Settings:
    """Reads the settings from the environment; `ports` are defaults."""
    settings = kind()
    unset = {name: port for name, port in ports.items() if name not in settings.model_fields_set}
    return settings.model_copy(update=unset)


@contextmanager
def serve_health(metrics: WorkerMetrics, host: str, port: int) -> Iterator[None]:
    """Serves a worker's health and metrics in a separate thread until the end of the block. Raises OSError if the port
    is in use."""
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

    from services.edge.app import health_application
    from services.edge.server import server_config

    app = health_application(
        metrics.why_not_ready, not_live=metrics.why_not_alive, status=lambda: metrics.status
    )
    server = uvicorn.Server(server_config(app, *listener.getsockname()[:2]))
    running.append(server)
    server.run(sockets=[listener])
