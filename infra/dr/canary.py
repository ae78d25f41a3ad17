"""The canary: one small record a second from the active site; its age on arrival is the mirror's delay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog
from confluent_kafka import (
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from contracts.kernel.records import Canary
from infra.stack.mirror_settings import CANARY
from services.kernel.log import clients
from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import now_micros

EVERY_SECONDS = 1.0

log = structlog.get_logger()


class CanarySender:
    """Sends to its own site's broker. `send` never waits."""

    def __init__(self, bootstrap: str, site: str) -> None:
        self._site = site
        self._producer = clients.writer(
            bootstrap, {"enable.idempotence": False, "message.timeout.ms": 5000, "log_level": 0}
        )

    def send(self, epoch: int) -> None:
        record = Canary(self._site, epoch, now_micros())
        self._producer.produce(
            CANARY, encode(CANARY, record), self._site, partition=0, on_delivery=self._delivered
        )
        self._producer.poll(0)

    @staticmethod
    def _delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            log.warning("canary_not_sent", reason=error.str())


class CanaryWatch:
    """Follows the other site's canaries in this site's log, in a thread of its own, which calls `arrived`."""

    def __init__(self, bootstrap: str, site: str, arrived: Callable[[], None]) -> None:
        self._site, self._tell = site, arrived
        self._arrived: tuple[float, float] | None = None  # delay, and when it was sent: seconds
        self._consumer = clients.follower(
            bootstrap,
            [TopicPartition(CANARY, 0, OFFSET_END)],
            {
                "fetch.wait.max.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            },
        )
        threading.Thread(target=self._follow, name="canary", daemon=True).start()

    def delay(self) -> float | None:
        """Seconds that the newest canary took; more when the next one is overdue; None before the first."""
        arrived = self._arrived
        if arrived is None:
            return None
        took, sent = arrived
        return max(took, time.time() - sent - EVERY_SECONDS)

    def _follow(self) -> None:
        while True:
            try:
                record = self._consumer.poll(1.0)
            except KafkaException as error:
                log.warning("canary_not_followed", reason=error.args[0].str())
                continue
            if record is None or record.error() is not None:
                continue
            now = time.time()
            match decode(record.value()):
                case Canary(site=site, sent_at=sent) if site != self._site:
                    self._arrived = now - sent / 1_000_000, sent / 1_000_000
                    self._tell()
