"""Kafka transactions: two transactional ids in turn, and what an error means.

While one id's transaction begins, the broker writes the markers of the other's: with one id every begin would wait.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from services.kernel import KernelError
from services.kernel.log import clients
from services.kernel.log.reader import Partition
from services.kernel.record.codec import Record

Result = TypeVar("Result")

# Bytes. No topic accepts larger records; most accept far less, and the broker rejects what is larger.
LARGEST_RECORD = 32 * 2**20
ATTEMPTS, FENCE_SECONDS = 5, 10.0


class Aborted(KernelError):
    """The transaction was rolled back, cleanly: nothing of it is visible, the same work may be done again."""


class OwnershipLost(KernelError):
    """Another process owns the ids, or the end of a transaction is unknown: this process must end and restore anew."""


class Fenced(OwnershipLost):
    """Another process has initialised the ids."""


class _MustAbort(Exception):
    pass


def transactional_producer(bootstrap: str, transactional_id: str, timeout_ms: int) -> Producer:
    """A producer with the settings that decide latency (the broker returns CONCURRENT_TRANSACTIONS while
    markers are being written: a short backoff) and safety (no record outlives its transaction)."""
    return clients.writer(
        bootstrap,
        {
            # A client that finds all brokers down forgets those that it learned and begins anew; this one would go on
            # waiting for a coordinator among them: `send_offsets_to_transaction` hangs (librdkafka's issue 5511). A
            # frozen broker takes this one's brokers away for good (5301): the worker ends, or `fence` takes another.
            "metadata.recovery.strategy": "none",
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms * 8 // 10,
            "linger.ms": 0,
            "retry.backoff.ms": 2,
            "retry.backoff.max.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "message.max.bytes": LARGEST_RECORD,
        },
    )


class Transactions:
    """One slot's writer: `fence` first, then any number of `run`.

    `calling_since`: when the call under way in `settle` or `run` began, in monotonic seconds; None between calls.
    """

    def __init__(self, bootstrap: str, ids: Sequence[str], timeout_ms: int) -> None:
        self._patience = 3 * timeout_ms / 1000
        self._new = [partial(transactional_producer, bootstrap, own, timeout_ms) for own in ids]
        self._producers: list[Producer] = []
        self.calling_since: float | None = None

    def fence(self, timeout: float = 60) -> None:
        """End whatever an earlier owner of these ids has open, and shut it out for good. Raises `OwnershipLost`."""
        self._producers = [_fencing(new, timeout) for new in self._new]
        self._turn = cycle(self._producers)

    def settle(self, partitions: Sequence[Partition], offsets: list[TopicPartition], group: Any) -> None:
        """Abort what these ids may have left in `partitions` and in `group`'s offsets: where a broker lost markers
        (`completion.py`), readers wait until the same id ends a transaction. Raises `OwnershipLost` if it cannot."""
        unsettled: list[str] = []

        def delivered(error: KafkaError | None, record: Message) -> None:
            if error is not None:
                unsettled.append(f"{record.topic()}/{record.partition()}: {error.str()}")

        for producer in self._producers:
            try:
                self._call(producer.begin_transaction)
                for topic, partition in partitions:
                    produce(producer, topic, b"", "settle", partition=partition, on_delivery=delivered)
                if offsets:
                    self._call(producer.send_offsets_to_transaction, offsets, group, 30)
                left = producer.flush(30)
            except (_MustAbort, KafkaException, SystemError) as error:  # fenced while it reports a delivery
                raise OwnershipLost(f"not settled: {error.__cause__ or error}") from error
            self._abort(producer)
            if left or unsettled:
                raise OwnershipLost(f"not settled: {unsettled[:1] or f'{left} records left'}")

    def run(self, stage: Callable[[Producer], None], offsets: list[TopicPartition], group: Any) -> None:
        """One transaction: what `stage` produces, and the consumed `offsets` of `group`.

        Returns after the commit. Raises `Aborted` or `OwnershipLost`. `stage` only produces: all that can
        fail for another reason (rules, encoding) comes before.
        """
        producer = next(self._turn)
        try:
            self._call(producer.begin_transaction)
            stage(producer)
            if offsets:
                self._call(producer.send_offsets_to_transaction, offsets, group, 10)
            self._call(producer.commit_transaction, 10)
        except (_MustAbort, KafkaException) as error:
            self._abort(producer)
            raise Aborted(str(error)) from error

    def run_again(
        self, stage: Callable[[Producer], None], offsets: Sequence[TopicPartition] = (), group: Any = None
    ) -> None:
        """A transaction of what was not consumed, again after clean aborts. Raises like `run`."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.run(stage, list(offsets), group)
                return
            except Aborted:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(0.1 * attempt)

    def _abort(self, producer: Producer) -> None:
        try:
            self._call(producer.abort_transaction, 10)
        except _MustAbort as error:
            raise OwnershipLost(f"abort failed: {error}") from error

    def _call(self, step: Callable[..., Result], *args: Any) -> Result:
        """The step, again while that may help; whoever reads `calling_since` sees how long it takes."""
        self.calling_since = time.monotonic()
        until = self.calling_since + self._patience
        try:
            while True:
                try:
                    return step(*args)
                except KafkaException as error:
                    cause = error.args[0]
                    if cause.fatal():
                        raise _lost(error) from error
                    if cause.txn_requires_abort():
                        raise _MustAbort(str(cause)) from error
                    if not cause.retriable() or time.monotonic() > until:
                        raise OwnershipLost(f"unknown end: {cause}") from error
        finally:
            self.calling_since = None


def _fencing(new: Callable[[], Producer], timeout: float) -> Producer:
    """A producer that owns its id. One that meets a broker as it wakes may look for it in vain: then another one."""
    seconds = min(FENCE_SECONDS, timeout)
    until = time.monotonic() + timeout - seconds
    while True:
        producer = new()
        try:
            # Before it is connected a producer looks for its coordinator in vain, and again after 500 ms.
            producer.list_topics(timeout=seconds)
            producer.init_transactions(seconds)
            return producer
        except KafkaException as error:
            if error.args[0].fatal() or time.monotonic() > until:
                raise _lost(error) from error


def _lost(error: KafkaException) -> OwnershipLost:
    return (Fenced if error.args[0].code() == KafkaError._FENCED else OwnershipLost)(str(error.args[0]))


def produce(
    producer: Producer, topic: str, value: bytes | None, key: str | bytes | None, **more: Any
) -> None:
    """Queue a record; waits while the local queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, **more)
            return
        except BufferError:
            producer.poll(0.01)


def produce_all(records: Iterable[Record], producer: Producer) -> None:
    for topic, value, key, more in records:
        produce(producer, topic, value, key, **more)
