"""The order worker: this service's aggregate, run by the kernel's loop."""

from __future__ import annotations

from services.kernel.aggregate import Aggregate
from services.kernel.worker import WorkerSettings, run_worker
from services.order.domain.decider import order_decider
from services.order.domain.state import STATES
from services.order.process import order_process

ORDER = Aggregate("order", order_decider, order_process, STATES)


def run(settings: WorkerSettings) -> int:
    """Own a slot until SIGTERM; the exit code."""
    return run_worker(ORDER, settings)
