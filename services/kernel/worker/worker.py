"""A worker process: stand by while the site is passive; while it is active, open the slot and turn the loop.

Any loss of ownership ends the process, visibly: it never goes back from writing to standing by.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import structlog
from confluent_kafka import KafkaException

from contracts.topics import TOPICS
from services.kernel.collector import keep_what_is_here
from services.kernel.errors import KernelError
from services.kernel.exit_codes import (
    EXIT_GAP,
    EXIT_JUDGED,
    EXIT_LAYOUT,
    EXIT_LOST,
    EXIT_STOOD_DOWN,
    EXIT_STOPPED,
)
from services.kernel.log.control import ControlWatch, read_control
from services.kernel.log.journal import JournalWatch
from services.kernel.log.transactions import Aborted, Fenced, OwnershipLost
from services.kernel.model.process import Aggregate
from services.kernel.settings import WorkerSettings
from services.kernel.worker.addressing import LaterEpoch
from services.kernel.worker.broker_monitor import end_when_stuck
from services.kernel.worker.command_loop import CommandLoop
from services.kernel.worker.execution import Executor
from services.kernel.worker.restoring import VersionGap
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import LayoutChanged, Slot, SlotConfig, StoodDown
from services.kernel.worker.standby import Standby
from services.kernel.worker.takeover import take_over
from services.kernel.worker.worker_metrics import WorkerMetrics

ANSWERS_PER_PARTITION = 1_000_000
DEMOTED_SECONDS = 1.0

log = structlog.get_logger()


class RecordsJudged(KernelError):
    """An operator decided on records of this service: their keys are folded anew at the next start."""


def run_worker(aggregate: Aggregate[Any, Any, Any], settings: WorkerSettings, metrics: WorkerMetrics) -> int:
    """Stand by while the site is passive, own a slot and work while it is active, until SIGTERM.

    Returns the exit code.
    """
    metrics.measure_lag(settings.kafka)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        _work(aggregate, settings, metrics, stop)
    except LayoutChanged as error:
        log.error("layout_changed", reason=str(error))
        return EXIT_LAYOUT
    except VersionGap as error:
        log.error("version_gap", reason=str(error))
        return EXIT_GAP
    except (StoodDown, LaterEpoch) as error:
        log.warning(
            "stood_down", reason=str(error), next="the supervisor starts this slot again, to stand by"
        )
        return EXIT_STOOD_DOWN
    except RecordsJudged as news:
        log.info("decision_recorded", service=str(news), next="the supervisor starts this slot again")
        return EXIT_JUDGED
    except (OwnershipLost, Aborted, KafkaException, TimeoutError) as error:
        log.error("ownership_lost", reason=str(error), next="the supervisor starts this slot again")
        return EXIT_LOST
    return EXIT_STOPPED


def _work(
    aggregate: Aggregate[Any, Any, Any],
    settings: WorkerSettings,
    metrics: WorkerMetrics,
    stop: threading.Event,
) -> None:
    config = SlotConfig(
        bootstrap=settings.kafka,
        slot=settings.slot,
        layout=settings.layout,
        slots=settings.slots,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        window=Window(settings.retry_window_hours, ANSWERS_PER_PARTITION),
        snapshot_seconds=settings.snapshot_seconds,
    )
    watch, journal = ControlWatch(settings.kafka), JournalWatch(settings.kafka)
    slot = Slot(aggregate, config, lambda error: _end_process(error, watch))
    if not watch.control.writing:
        _stand_by(slot, watch, journal, metrics, stop)
    if not stop.is_set():
        try:
            _run_loop(slot, settings, watch, journal, metrics, stop)
        except Fenced as error:
            if _demoted(watch):
                raise StoodDown(str(error)) from error
            raise
    slot.close()


def _stand_by(
    slot: Slot[Any, Any, Any],
    watch: ControlWatch,
    journal: JournalWatch,
    metrics: WorkerMetrics,
    stop: threading.Event,
) -> None:
    """Fold the mirrored log until the site becomes active."""
    standby = Standby(slot)
    keep_what_is_here()
    metrics.standing_by(slot.restore_seconds, slot.fold.positions)
    log.info("standing_by", service=slot.aggregate.name, seconds=slot.restore_seconds)
    while not stop.is_set() and not watch.control.writing:
        standby.turn()
        _require_honoured(slot, journal)
        metrics.ticked()
    standby.close()


def _run_loop(
    slot: Slot[Any, Any, Any],
    settings: WorkerSettings,
    watch: ControlWatch,
    journal: JournalWatch,
    metrics: WorkerMetrics,
    stop: threading.Event,
) -> None:
    aggregate = slot.aggregate
    metrics.activating()
    seconds = settings.transaction_timeout_ms / 1000
    end_when_stuck(settings.kafka, slot.transactions, seconds, lambda error: _end_process(error, watch))
    inputs = slot.open()
    keep_what_is_here()
    executor = Executor(
        aggregate,
        slot.partitions,
        slot.partition_count,
        slot.epoch,
        lambda: read_control(settings.kafka).role.epoch,
        lambda: watch.control.phase,
    )
    if slot.taking_over:
        asked = take_over(slot, executor, settings.takeover_hours)
        log.info("taken_over", service=aggregate.name, epoch=slot.epoch, asks=asked)
    metrics.restored(slot.restore_seconds, slot.epoch, slot.committed)
    sizes = {number: len(partition) for number, partition in slot.partitions.items()}
    log.info(
        "slot_ready", service=aggregate.name, slot=settings.slot, entities=sizes, seconds=slot.restore_seconds
    )
    loop = CommandLoop(slot, inputs, executor, metrics, settings.window_ms / 1000, settings.redrive_seconds)
    while not stop.is_set():
        control = watch.control
        if not control.writing or control.role.epoch != slot.epoch:
            raise StoodDown(f"the site is {control.role.role} in epoch {control.role.epoch}")
        loop.turn()
        _require_honoured(slot, journal)
        metrics.ticked()
    inputs.close()


def _require_honoured(slot: Slot[Any, Any, Any], watch: JournalWatch) -> None:
    """Raises `RecordsJudged` for decisions on this service's records that its fold does not know."""
    if watch.news(slot.fold.journal, TOPICS[slot.aggregate.name].events):
        raise RecordsJudged(slot.aggregate.name)


def _demoted(watch: ControlWatch) -> bool:
    """Whether the process was shut out because its site was demoted. The record of that precedes the fence,
    but may be read after it."""
    until = time.monotonic() + DEMOTED_SECONDS
    while watch.control.writing and time.monotonic() < until:
        time.sleep(0.02)
    return not watch.control.writing


def _end_process(error: BaseException, watch: ControlWatch) -> None:
    """Another thread knows that the slot is lost: the loop must not take one more command."""
    stood_down = isinstance(error, Fenced) and _demoted(watch)
    log.error("ownership_lost", reason=str(error), next="the supervisor starts this slot again")
    os._exit(EXIT_STOOD_DOWN if stood_down else EXIT_LOST)
