"""A client of a service's command topic: sends commands, repeats some of them, and keeps every outcome that
it receives."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from contracts.kernel.records import Outcome
from infra.base.waiting import wait_until
from infra.lab.checker.evidence import Acknowledged
from services.kernel.record.codec import decode, encode, topic_of
from services.kernel.record.envelope import Metadata, ReplyAddress, now_micros, write_headers


class Client:
    """Sends commands; `outcomes` are the received ones, in order. Reads partition `replica` of the outcomes
    topic."""

    def __init__(self, bootstrap: str, service: str, replica: int = 3) -> None:
        self._service, self._replica = service, replica
        self.outcomes: list[Outcome] = []
        self.sent: dict[str, tuple[str, Any]] = {}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 1, "log_level": 3}
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"test-client-{service}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        at = TopicPartition(f"{service}.outcomes", replica)
        _, end = self._consumer.get_watermark_offsets(at, 30)
        self._consumer.assign([TopicPartition(at.topic, at.partition, end or OFFSET_END)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(
        self,
        command: Any,
        key: str,
        command_id: str,
        *,
        request_hash: str = "h",
        expected: int | None = None,
        epoch: int = 1,
        reply_to: ReplyAddress | None = None,
        to: str = "",
    ) -> None:
        """`reply_to` defaults to this client; `to` is `commands` or `inbox` and defaults to the command's own
        topic."""
        metadata = Metadata(
            id=command_id,
            type=command.TYPE,
            subject=key,
            source="test",
            recorded_at=now_micros(),
            correlation_id=command_id,
            causation_id=command_id,
            epoch=epoch,
            request_hash=request_hash,
            reply_to=reply_to or ReplyAddress(f"{self._service}.outcomes", self._replica, "", ""),
            expected_version=expected,
        )
        topic = f"{self._service}.{to}" if to else topic_of(command.TYPE)
        self.sent[command_id] = (key, command)
        self._producer.produce(
            topic, encode(topic_of(command.TYPE), command), key, headers=write_headers(metadata)
        )
        self._producer.poll(0)

    def raw(self, key: str, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        """Sends a record unchanged, valid or not."""
        self._producer.produce(f"{self._service}.commands", value, key, headers=headers)
        self._producer.flush(10)

    def flush(self) -> None:
        self._producer.flush(30)

    def latest_outcomes(self) -> dict[str, Outcome]:
        """The newest outcome of each command."""
        return {outcome.command_id: outcome for outcome in list(self.outcomes)}

    def wait_for(self, command_ids: set[str], seconds: float = 60) -> dict[str, Outcome]:
        """The outcomes of these commands. Raises TimeoutError."""
        wait_until(
            lambda: sorted(command_ids - self.latest_outcomes().keys())[:3],
            f"the outcomes of {len(command_ids)} commands",
            seconds,
            enough=lambda missing: not missing,
            every=0.01,
        )
        return {command_id: self.latest_outcomes()[command_id] for command_id in command_ids}

    def acknowledged(self) -> list[Acknowledged]:
        """All received outcomes, for the checker: those of repeats must be equal."""
        return [
            Acknowledged(o.command_id, o.subject, o.kind, o.version, o.event_ids, o.code)
            for o in self.outcomes
            if o.kind != "failed" and o.code != "idempotency_key_reused"
        ]

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _listen(self) -> None:
        while not self._stop.is_set():
            for record in self._consumer.consume(500, 0.05):
                if record.error() is None:
                    self.outcomes.extend(decode(record.value()).outcomes)
