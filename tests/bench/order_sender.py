"""A client of the order worker without HTTP: sends an order and receives its outcome."""

from __future__ import annotations

import itertools
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from services.kernel.log.clients import Connection
from services.kernel.record.codec import decode
from services.kernel.record.envelope import ReplyAddress
from tests.bench import bulk
from tests.bench.harness import Unmeasurable

PATIENCE_SECONDS = 300.0
REPLICA = 3


class OrderSender:
    """`send_order` sends an order; `accepted_at` waits for its outcome and returns when it arrived."""

    def __init__(self, address: str) -> None:
        self._numbers = itertools.count()
        self._accepted: dict[str, float] = {}
        self._news = threading.Condition()
        self._stop = threading.Event()
        self._producer = Producer(
            Connection(address).librdkafka() | {"partitioner": "murmur2_random", "linger.ms": 0}
        )
        self._consumer = Consumer(
            Connection(address).librdkafka()
            | {
                "group.id": "bench-asker",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition("order.outcomes", REPLICA, 0)])
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> OrderSender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def send_order(self) -> str:
        """Send the next order and return the command's id."""
        ((key, command),) = bulk.commands("small", 1, 10_000_000 + next(self._numbers))
        to = ReplyAddress("order.outcomes", REPLICA, "", "")
        identity = bulk.put_command(self._producer, key, command, to)
        self._producer.flush(30)
        return identity

    def accepted_at(self, identity: str) -> float:
        """`time.perf_counter()` when the command was accepted. Raises Unmeasurable when it is not accepted in time."""
        with self._news:
            if not self._news.wait_for(lambda: identity in self._accepted, PATIENCE_SECONDS):
                raise Unmeasurable(f"no outcome within {PATIENCE_SECONDS:.0f} s")
            return self._accepted[identity]

    def _listen(self) -> None:
        while not self._stop.is_set():
            records = self._consumer.consume(500, 0.05)
            now = time.perf_counter()
            with self._news:
                for record in records:
                    if record.error() is None:
                        outcomes = decode(record.value()).outcomes
                        accepted = [outcome for outcome in outcomes if outcome.kind == "accepted"]
                        self._accepted.update((outcome.command_id, now) for outcome in accepted)
                self._news.notify_all()
