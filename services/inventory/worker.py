"""The inventory worker: this service's aggregate, run by the kernel's loop."""

from __future__ import annotations

from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.inventory.process import inventory_process
from services.kernel.aggregate import Aggregate
from services.kernel.worker import WorkerSettings, run_worker

INVENTORY = Aggregate("inventory", stock_decider, inventory_process, (Stock,))


def run(settings: WorkerSettings) -> int:
    """Own a slot until SIGTERM; the exit code."""
    return run_worker(INVENTORY, settings)
