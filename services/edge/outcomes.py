"""Reads what a gateway needs: its partition of `<service>.outcomes`, and `site.control`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from contracts.kernel.records import Outcome, OutcomeBatch
from services.kernel.log import clients
from services.kernel.log.control import TOPIC as CONTROL
from services.kernel.log.control import Control
from services.kernel.log.reader import high_watermarks
from services.kernel.record.codec import Undecodable, decode

log = structlog.get_logger(__name__)


class OutcomeReader:
    """Runs in its own thread and calls `on_outcomes` there with the outcomes of one read, in order. `not_ready` is
    None once both topics have been read to their ends: no later outcome is missed."""

    def __init__(
        self, bootstrap: str, topic: str, partition: int, on_outcomes: Callable[[list[Outcome]], None]
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partition = partition
        self._on_outcomes = on_outcomes
        self._unread: set[tuple[str, int]] = set()
        self.not_ready: str | None = "the log is not reachable yet"
        self.control = Control()

    def run(self, stopping: threading.Event) -> None:
        """Reads until `stopping`; retries each second when the log fails."""
        while not stopping.is_set():
            try:
                self._read(stopping)
            except (KafkaException, KeyError, Undecodable, TypeError) as error:
                self.not_ready = f"outcomes are not readable: {error}"
                log.warning("outcomes are not readable, trying again", reason=str(error))
                stopping.wait(1)

    def _read(self, stopping: threading.Event) -> None:
        options = clients.LASTING | {"fetch.wait.max.ms": 100, "socket.nagle.disable": True}
        consumer = clients.reader(self._bootstrap, options)
        try:
            self._assign(consumer)
            while not stopping.is_set():
                first = consumer.poll(0.2)
                if first is None:
                    continue
                records = [first, *consumer.consume(500, 0)]
                outcomes = [outcome for record in records for outcome in self._outcomes_of(record)]
                if outcomes:
                    self._on_outcomes(outcomes)
                if not self._unread:
                    self.not_ready = None
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer) -> None:
        """Starts at the current end of the outcomes: later commands have later outcomes."""
        end = high_watermarks(self._bootstrap, self._topic, [self._partition], timeout=10)[self._partition]
        consumer.assign([TopicPartition(self._topic, self._partition, end), TopicPartition(CONTROL, 0, 0)])
        self._unread = {(self._topic, self._partition), (CONTROL, 0)}

    def _outcomes_of(self, record: Message) -> Iterable[Outcome]:
        error = record.error()
        if error is None and record.topic() == CONTROL:
            self.control.take(record.key(), record.value())
        elif error is None:
            return self._decode(record)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard((record.topic(), record.partition()))
        elif not error.retriable():
            raise KafkaException(error)
        return ()

    def _decode(self, record: Message) -> Iterable[Outcome]:
        try:
            match decode(record.value()) if record.value() is not None else None:
                case OutcomeBatch(outcomes=outcomes):
                    return outcomes
        except Undecodable as error:
            # These requests end as unknown; the next outcomes still arrive.
            log.error("undecodable", topic=record.topic(), offset=record.offset(), reason=str(error))
        return ()
