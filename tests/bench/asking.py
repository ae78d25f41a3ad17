"""A client of the order worker without HTTP: sends an order, hears its outcome."""

from __future__ import annotations

import itertools
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import Metadata, ReplyAddress, now_micros, uuid7
from tests.bench import bulk
from tests.bench.harness import Unmeasurable

PATIENCE_SECONDS = 300.0
REPLICA = 3


class Asker:
    """`ask` sends an order, `answered` waits for it and tells when the outcome was heard."""

    def __init__(self, bootstrap: str) -> None:
        self._numbers = itertools.count()
        self._heard: dict[str, float] = {}
        self._news = threading.Condition()
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 0, "log_level": 3}
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-asker",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "log_level": 3,
            }
        )
        self._consumer.assign([TopicPartition("order.outcomes", REPLICA, 0)])
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Asker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def ask(self) -> str:
        """Send the next order; the command's id."""
        identity = uuid7()
        ((key, command),) = bulk.commands("small", 1, 10_000_000 + next(self._numbers))
        metadata = Metadata(
            id=identity,
            type=command.TYPE,
            subject=key,
            source="daybook/home/bench",
            recorded_at=now_micros(),
            correlation_id=identity,
            causation_id=identity,
            epoch=1,
            request_hash="bench",
            reply_to=ReplyAddress("order.outcomes", REPLICA, "", ""),
        )
        bulk.put(self._producer, "order.commands", encode("order.commands", command), key, metadata)
        self._producer.flush(30)
        return identity

    def answered(self, identity: str) -> float:
        """`time.perf_counter()` when it was accepted. Raises Unmeasurable when it is not, or not in time."""
        with self._news:
            if not self._news.wait_for(lambda: identity in self._heard, PATIENCE_SECONDS):
                raise Unmeasurable(f"no outcome within {PATIENCE_SECONDS:.0f} s")
            return self._heard[identity]

    def _listen(self) -> None:
        while not self._stop.is_set():
            records = self._consumer.consume(500, 0.05)
            now = time.perf_counter()
            with self._news:
                for record in records:
                    if record.error() is None:
                        outcomes = decode(record.value()).outcomes
                        accepted = [outcome for outcome in outcomes if outcome.kind == "accepted"]
                        self._heard.update((outcome.command_id, now) for outcome in accepted)
                self._news.notify_all()
