"""The worker's own loop, for as many commands as requested: `python -m … SERVICE BOOTSTRAP SNAPSHOT_SECONDS [SLOT
LAYOUT SLOTS]`.

As `services.kernel.worker.worker` runs it, with metrics, snapshots and its collector's settings, but for the web
server and the signals.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import psutil

from services.kernel.collector import keep_what_is_here
from services.kernel.model.process import Aggregate
from services.kernel.worker.command_loop import CommandLoop
from services.kernel.worker.execution import Executor
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import Slot, SlotConfig
from services.kernel.worker.worker import ANSWERS_PER_PARTITION
from services.kernel.worker.worker_metrics import WorkerMetrics
from tests.bench.subjects.work_process import serve_work

WINDOW_SECONDS = 0.005
NEVER_SECONDS = 86_400.0  # nobody answers the asks: asking again is not what is measured


def main(
    service: str,
    bootstrap: str,
    snapshot_seconds: str,
    slot_number: str = "0",
    layout: str = "1",
    slots: str = "1",
) -> None:
    aggregate: Aggregate[Any, Any, Any] = getattr(
        importlib.import_module(f"services.{service}.service"), service.upper()
    )
    config = SlotConfig(
        bootstrap,
        int(slot_number),
        int(layout),
        int(slots),
        10_000,
        Window(24.0, ANSWERS_PER_PARTITION),
        float(snapshot_seconds),
    )
    slot: Slot[Any, Any, Any] = Slot(aggregate, config, _lost)
    consumer = slot.open()
    keep_what_is_here()
    executor: Executor[Any, Any, Any] = Executor(
        aggregate, slot.partitions, slot.counts, slot.epoch, phase=lambda: "closed"
    )
    loop: CommandLoop[Any, Any, Any] = CommandLoop(
        slot, consumer, executor, WorkerMetrics(service), WINDOW_SECONDS, NEVER_SECONDS
    )

    def work(count: int) -> Mapping[str, float]:
        done = batches = 0
        while done < count:
            done += loop.run_once()
            batches += 1
        return {"batch": done / batches, "MiB": psutil.Process().memory_info().rss / 2**20}

    serve_work(work, slot.snapshot)


def _lost(error: BaseException) -> None:
    print(error, file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
