"""Transactions that are aborted, among those of the shop: no reader of committed data may ever see one."""

from __future__ import annotations

from typing import Self

from confluent_kafka import KafkaException

from infra.base.background import Background
from services.kernel.log import clients

TOPICS = ("order.events", "inventory.events", "order.answers")
RECORDS = 20
EVERY_SECONDS = 0.5
TIMEOUT = 20.0


class Aborts(Background):
    """Writes and aborts between `with` and its end; `records` were written in vain."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("aborts")
        self._producer = clients.writer(
            bootstrap, {"transactional.id": "drill-aborts", "transaction.timeout.ms": 10_000, "log_level": 0}
        )
        self._failure: KafkaException | None = None
        self.records = 0

    def __enter__(self) -> Self:
        self._producer.init_transactions(TIMEOUT)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._failure:
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._stopping.wait(EVERY_SECONDS):
                self._producer.begin_transaction()
                for number in range(RECORDS):
                    self._producer.produce(TOPICS[number % len(TOPICS)], b"never", f"never-{number}")
                self._producer.flush(TIMEOUT)
                self._producer.abort_transaction(TIMEOUT)
                self.records += RECORDS
        except KafkaException as error:
            self._failure = error
