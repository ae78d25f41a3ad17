"""A service: one aggregate, its HTTP side and its worker. `python -m services.<name>.service api|worker`.

Its folder holds `domain/`, `process.py`, `api.py` and `service.py`, which declares it:

    ORDER = Service("order", order_decider, order_process, STATES, api_port=27401, worker_port=27411)

    if __name__ == "__main__":
        raise SystemExit(ORDER.main())

Each part is imported when it runs: an API has no use for a worker's code, a worker none for a web framework.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib import import_module
from typing import TypeVar

from services.edge.json_logs import configure_logging
from services.edge.settings import ApiSettings
from services.kernel.model.process import Aggregate
from services.kernel.settings import ProcessSettings, WorkerSettings

Command = TypeVar("Command")
State = TypeVar("State")
Event = TypeVar("Event")
Settings = TypeVar("Settings", bound=ProcessSettings)


@dataclass(frozen=True, kw_only=True)
class Service(Aggregate[Command, State, Event]):
    """An aggregate and its two processes. The name is the folder's, and the first part of its topics' names.

    `api.py` in the folder has `create(settings)`, which returns the application; `api_settings` is the class
    of the settings. A process listens on its port here unless DAYBOOK_HTTP_PORT names another one.
    """

    api_port: int
    worker_port: int
    api_settings: type[ApiSettings] = ApiSettings

    def main(self) -> int:
        """Run the part that the command line names. Returns the process's exit code."""
        parser = argparse.ArgumentParser(prog=f"python -m services.{self.name}.service")
        parser.add_argument("part", choices=["api", "worker"], help="the HTTP side, or the owner of a slot")
        match parser.parse_args().part:
            case "api":
                return self.run_api()
            case _:
                return self.run_worker()

    def run_api(self) -> int:
        """Serve HTTP until SIGTERM."""
        from services.edge.server import serve

        settings = _read(self.api_settings, self.api_port)
        configure_logging(f"{self.name}-api", settings.log_level)
        create = import_module(f"services.{self.name}.api").create
        return serve(create(settings), settings.http_host, settings.http_port)

    def run_worker(self) -> int:
        """Own a slot until SIGTERM; health and metrics are served beside the loop."""
        from services.edge.worker_health import serve_health
        from services.kernel.worker.worker import run_worker
        from services.kernel.worker.worker_metrics import WorkerMetrics

        settings = _read(WorkerSettings, self.worker_port)
        configure_logging(f"{self.name}-worker", settings.log_level)
        metrics = WorkerMetrics(self.name)
        with serve_health(metrics, settings.http_host, settings.http_port):
            return run_worker(self, settings, metrics)


def _read(kind: type[Settings], port: int) -> Settings:
    """The environment's settings, with `port` where it names none."""
    settings = kind()
    return (
        settings
        if "http_port" in settings.model_fields_set
        else settings.model_copy(update={"http_port": port})
    )
