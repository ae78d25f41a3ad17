"""The order worker: this service's aggregate, run by the kernel's loop."""

from __future__ import annotations

from services.edge.worker_health import health_of
from services.kernel.worker.aggregate import Aggregate
from services.kernel.worker.worker import WorkerSettings, run_worker
from services.kernel.worker.worker_metrics import WorkerMetrics
from services.order.domain.decider import order_decider
from services.order.domain.state import STATES
from services.order.process import order_process

ORDER = Aggregate("order", order_decider, order_process, STATES)


def run(settings: WorkerSettings) -> int:
    """Own a slot until SIGTERM; the exit code."""
    metrics = WorkerMetrics(ORDER.name)
    with health_of(metrics, settings.http_host, settings.http_port):
        return run_worker(ORDER, settings, metrics)
