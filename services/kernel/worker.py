"""A worker process: open the slot, turn the loop until told to stop. Any loss of ownership ends the
process, visibly."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from typing import Any, Protocol

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from services.kernel.aggregate import Aggregate
from services.kernel.command_loop import CommandLoop
from services.kernel.entities import Window
from services.kernel.execution import Executor
from services.kernel.log_reader import partitions_of
from services.kernel.restoring import VersionGap
from services.kernel.slot import LayoutChanged, Slot, SlotConfig
from services.kernel.transactions import OwnershipLost
from services.kernel.worker_metrics import WorkerMetrics

EXIT_LOST, EXIT_LAYOUT, EXIT_GAP = 3, 4, 5
ANSWERS_PER_PARTITION = 1_000_000
LAG_SECONDS = 2.0

log = structlog.get_logger()


class WorkerSettings(Protocol):
    """What a worker needs of its service's settings; times as the names say."""

    kafka: str
    http_host: str
    http_port: int
    slot: int
    slots: int
    layout: int
    window_ms: float
    snapshot_seconds: float
    retry_window_hours: float
    transaction_timeout_ms: int
    redrive_seconds: float


def run_worker(aggregate: Aggregate[Any, Any, Any], settings: WorkerSettings) -> int:
    """Own a slot and work until SIGTERM. Answers the exit code: 0 stopped, 3 ownership lost, 4 layout
    changed, 5 gap."""
    metrics = WorkerMetrics(aggregate.name)
    metrics.serve(settings.http_host, settings.http_port)
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
    except (OwnershipLost, KafkaException, TimeoutError) as error:
        log.error("ownership_lost", reason=str(error), next="the supervisor starts this slot again")
        return EXIT_LOST
    return 0


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
    slot = Slot(aggregate, config, _end_process)
    consumer = slot.open()
    # what was restored stays: no collection needs to look at it again, and young ones may be rarer
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    metrics.restored(slot.restore_seconds)
    sizes = {number: len(partition) for number, partition in slot.partitions.items()}
    log.info(
        "slot_ready", service=aggregate.name, slot=settings.slot, entities=sizes, seconds=slot.restore_seconds
    )
    executor = Executor(
        aggregate,
        slot.partitions,
        len(partitions_of(settings.kafka, f"{aggregate.name}.commands")),
        slot.epoch,
    )
    loop = CommandLoop(slot, consumer, executor, metrics, settings.window_ms / 1000, settings.redrive_seconds)
    measured = 0.0
    while not stop.is_set():
        loop.turn()
        metrics.ticked()
        if time.monotonic() - measured > LAG_SECONDS:
            metrics.lag(_waiting(consumer))
            measured = time.monotonic()
    slot.close()
    consumer.close()


def _waiting(consumer: Consumer) -> int:
    """Commands behind the consumer, from what it last heard (no request is made); markers count as
    commands."""
    waiting = 0
    for at in consumer.position(consumer.assignment()):
        _, end = consumer.get_watermark_offsets(TopicPartition(at.topic, at.partition), cached=True)
        waiting += max(0, end - at.offset) if at.offset >= 0 else 0
    return waiting


def _end_process(error: BaseException) -> None:
    """The snapshot thread lost the slot: the loop must not take one more command."""
    log.error("snapshots_lost", reason=str(error))
    os._exit(EXIT_LOST)
