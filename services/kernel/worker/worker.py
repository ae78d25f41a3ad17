"""A worker process: stand by while the site is passive; while it is active, open the slot and run the loop.

Any loss of ownership ends the process, visibly: it never goes back from writing to standing by.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import KafkaException

from contracts.kernel.records import SlotLayout
from contracts.topics import TOPICS
from services.kernel import KernelError
from services.kernel.collector import keep_what_is_here
from services.kernel.exit_codes import (
    EXIT_GAP,
    EXIT_JUDGED,
    EXIT_LAYOUT,
    EXIT_LOST,
    EXIT_STOOD_DOWN,
    EXIT_STOPPED,
)
from services.kernel.log.control import Control, ControlWatch, JournalWatch, read_control
from services.kernel.log.proof import SiteProver
from services.kernel.log.reader import events_follower
from services.kernel.log.transactions import Aborted, Fenced, OwnershipLost
from services.kernel.model.process import Aggregate
from services.kernel.record.codec import sound
from services.kernel.record.envelope import now_micros
from services.kernel.settings import WorkerSettings
from services.kernel.threads import end_with_threads
from services.kernel.worker.addresses import LaterEpoch
from services.kernel.worker.broker_monitor import end_when_stuck
from services.kernel.worker.command_loop import CommandLoop
from services.kernel.worker.execution import Executor
from services.kernel.worker.restore import VersionGap
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import LayoutChanged, Slot, SlotConfig, StoodDown
from services.kernel.worker.takeover import take_over
from services.kernel.worker.worker_metrics import WorkerMetrics

IDLE_SECONDS = 0.1
LAYOUT_SECONDS = 0.05
BATCH = 1000
ANSWERS_PER_PARTITION = 1_000_000
RECORD_SECONDS = 1.0
log = structlog.get_logger()


class RecordsJudged(KernelError):
    """An operator decided on records of this service: their keys are folded anew at the next start."""


def run_worker(aggregate: Aggregate[Any, Any, Any], settings: WorkerSettings, metrics: WorkerMetrics) -> int:
    """Stand by while the site is passive, own a slot and work while it is active, until SIGTERM.

    Returns the exit code.
    """
    end_with_threads()
    metrics.measure_lag(settings.kafka)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        _Worker(aggregate, settings, metrics, stop).run()
    except LayoutChanged as error:
        log.warning("layout_changed", reason=str(error), next="the supervisor starts this slot again")
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


class _Worker:
    """One slot's process: the records of its site, and what it does while the site is passive or active."""

    def __init__(
        self,
        aggregate: Aggregate[Any, Any, Any],
        settings: WorkerSettings,
        metrics: WorkerMetrics,
        stop: threading.Event,
    ) -> None:
        self._aggregate, self._settings, self._metrics, self._stop = aggregate, settings, metrics, stop
        self._watch, self._journal = ControlWatch(settings.kafka), JournalWatch(settings.kafka)

    def run(self) -> None:
        """Returns when the process is stopped. Raises what `run_worker` maps to exit codes."""
        if (layout := self._own_layout()) is None:
            return
        settings = self._settings
        config = SlotConfig(
            bootstrap=settings.kafka,
            slot=settings.slot,
            layout=layout.number,
            slots=layout.slots,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            window=Window(settings.retry_window_hours, ANSWERS_PER_PARTITION),
            snapshot_seconds=settings.snapshot_seconds,
        )
        slot: Slot[Any, Any, Any] = Slot(
            self._aggregate, config, lambda error: self._end_process(error, slot)
        )
        if not self._watch.control.writing:
            self._stand_by(slot)
        if not self._stop.is_set():
            try:
                self._run_loop(slot)
            except Fenced as error:
                if (reason := self._why_fenced(slot)) is not None:
                    raise reason(str(error)) from error
                raise
        slot.close()

    def _own_layout(self) -> SlotLayout | None:
        """Wait until the service's layout is open and has this slot. Returns None if the process is stopped before."""
        service, slot = self._aggregate.name, self._settings.slot
        while not self._stop.is_set():
            layout = self._watch.control.layout(service)
            if layout.number > 0 and slot < layout.slots:
                self._metrics.placed(layout.number)
                return layout
            self._metrics.waiting(
                f"{service} has {layout.slots} slots, none of them is number {slot}"
                if layout.number > 0
                else "the slot layout is being changed: if that was interrupted, run the same command again"
            )
            self._stop.wait(LAYOUT_SECONDS)
        return None

    def _stand_by(self, slot: Slot[Any, Any, Any]) -> None:
        """Fold the mirrored log, to keep the slot warm, until the site becomes active."""
        slot.stand_by()
        consumer = events_follower(self._settings.kafka, slot.fold.positions)
        keep_what_is_here()
        self._metrics.standing_by(slot.restore_seconds, slot.fold.positions)
        log.info("standing_by", service=slot.aggregate.name, seconds=slot.restore_seconds)
        while not self._stop.is_set() and not self._watch.control.writing:
            if records := sound(consumer.consume(BATCH, IDLE_SECONDS)):
                with slot.lock:
                    for record in records:
                        slot.fold.take(record)
                    for partition in slot.partitions.values():
                        partition.expire(now_micros())
                        partition.evict_unchanged(BATCH)
            self._check(slot, self._watch.control)
        consumer.close()

    def _run_loop(self, slot: Slot[Any, Any, Any]) -> None:
        aggregate, settings, metrics, watch = self._aggregate, self._settings, self._metrics, self._watch
        metrics.activating()
        why_not = self._proof()
        seconds = settings.transaction_timeout_ms / 1000
        end_when_stuck(
            settings.kafka, slot.transactions, seconds, lambda error: self._end_process(error, slot)
        )
        inputs = slot.open()
        keep_what_is_here()
        executor = Executor(
            aggregate,
            slot.partitions,
            slot.counts,
            slot.epoch,
            lambda: read_control(settings.kafka).role.epoch,
            lambda: watch.control.phase,
        )
        if slot.taking_over:
            resent = take_over(slot, executor, settings.takeover_hours)
            log.info("taken_over", service=aggregate.name, epoch=slot.epoch, asks=resent)
        metrics.restored(slot.restore_seconds, slot.epoch, slot.committed)
        sizes = {number: len(partition) for number, partition in slot.partitions.items()}
        log.info(
            "slot_ready",
            service=aggregate.name,
            slot=settings.slot,
            entities=sizes,
            seconds=slot.restore_seconds,
        )
        windows = settings.window_ms / 1000, settings.redrive_seconds
        loop = CommandLoop(slot, inputs, executor, metrics, *windows, why_not)
        while not self._stop.is_set():
            control = watch.control
            if not control.writing or control.role.epoch != slot.epoch:
                raise StoodDown(f"the site is {control.role.role} in epoch {control.role.epoch}")
            if why_not():
                self._stop.wait(IDLE_SECONDS)
            else:
                loop.run_once()
            self._check(slot, control)
        inputs.close()

    def _proof(self) -> Callable[[], str]:
        """Why the worker must not write now. With one site it always may."""
        settings = self._settings
        if not settings.peer_kafka:
            return lambda: ""
        about = settings.kafka, settings.peer_kafka, lambda: self._watch.control, settings.lease_seconds
        return SiteProver(*about).why_not

    def _check(self, slot: Slot[Any, Any, Any], control: Control) -> None:
        """After each turn of a loop. Raises `LayoutChanged` as soon as the partitions are to be shared in another way,
        and `RecordsJudged` for decisions on this service's records that its fold does not know."""
        latest = control.layout(self._aggregate.name)
        if latest.number != slot.config.layout:
            raise LayoutChanged(f"layout {slot.config.layout} is followed by {latest.number}")
        if self._journal.news(slot.fold.journal, TOPICS[self._aggregate.name].events):
            raise RecordsJudged(self._aggregate.name)
        self._metrics.ticked()

    def _why_fenced(self, slot: Slot[Any, Any, Any]) -> type[KernelError] | None:
        """Why the process was shut out: its site was demoted, or the layout was changed. The record of that precedes
        the fence, but may be read after it. None where the slot has another owner."""
        until = time.monotonic() + RECORD_SECONDS
        while time.monotonic() < until:
            if not self._watch.control.writing:
                return StoodDown
            if self._watch.control.layout(self._aggregate.name).number != slot.config.layout:
                return LayoutChanged
            time.sleep(0.02)
        return None

    def _end_process(self, error: BaseException, slot: Slot[Any, Any, Any]) -> None:
        """Another thread knows that the slot is lost: the loop must not take one more command."""
        reason = self._why_fenced(slot) if isinstance(error, Fenced) else None
        log.error("ownership_lost", reason=str(error), next="the supervisor starts this slot again")
        os._exit(
            EXIT_STOOD_DOWN if reason is StoodDown else EXIT_LAYOUT if reason is LayoutChanged else EXIT_LOST
        )
