"""The inventory worker: this service's aggregate, run by the kernel's loop."""

from __future__ import annotations

from services.edge.worker_health import health_of
from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.inventory.process import inventory_process
from services.kernel.worker.aggregate import Aggregate
from services.kernel.worker.worker import WorkerSettings, run_worker
from services.kernel.worker.worker_metrics import WorkerMetrics

INVENTORY = Aggregate("inventory", stock_decider, inventory_process, (Stock,))


def run(settings: WorkerSettings) -> int:
    """Own a slot until SIGTERM; the exit code."""
    metrics = WorkerMetrics(INVENTORY.name)
    with health_of(metrics, settings.http_host, settings.http_port):
        return run_worker(INVENTORY, settings, metrics)
