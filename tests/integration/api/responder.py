"""A scripted worker: consumes `order.commands` from the broker and sends the outcomes that the test chooses."""

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from contracts.kernel.records import Outcome, OutcomeBatch
from services.kernel.log.reader import high_watermarks
from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import Metadata, read_headers, uuid7

Script = Callable[[Metadata, Any], Outcome | None]


def outcome(metadata: Metadata, **changes: Any) -> Outcome:
    """An acceptance, but for `changes`."""
    fields: dict[str, Any] = {
        "command_id": metadata.id,
        "command_type": metadata.type,
        "subject": metadata.subject,
        "tag": "",
        "kind": "accepted",
        "version": 1,
        "event_ids": (uuid7(),),
        "status": "placed",
        "code": "",
        "reason": "",
        "request_hash": metadata.request_hash,
        "replayed": False,
    }
    return Outcome(**fields | changes)


def accept(metadata: Metadata, _: Any) -> Outcome:
    return outcome(metadata)


class Responder:
    """`script` returns the outcome of a command (None: sends none); `received` is every command, in order.

    `epoch` is what its batches claim; 0: they are those of a worker of an earlier version.
    """

    def __init__(self, kafka: str) -> None:
        self.script: Script = accept
        self.epoch = 0
        self.received: list[tuple[Metadata, Any]] = []
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 0})
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "responder"})
        ends = high_watermarks(kafka, "order.commands", [0, 1])
        self._consumer.assign([TopicPartition("order.commands", p, end) for p, end in ends.items()])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            record = self._consumer.poll(0.05)
            if record is None or record.error():
                continue
            metadata, body = read_headers(record.headers()), decode(record.value())
            self.received.append((metadata, body))
            response, address = self.script(metadata, body), metadata.reply_to
            if response is not None and address is not None:
                value = encode(address.topic, OutcomeBatch((response,), self.epoch))
                self._producer.produce(address.topic, value, partition=address.partition)
                self._producer.flush()
