"""Asking a site's `site.control` again and again, also one that may not answer."""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from infra.base.errors import DaybookError
from services.kernel.log import clients
from services.kernel.log.control import TOPIC, Control

ANSWER_SECONDS = 2.0


class Address(NamedTuple):
    """A site as one side sees it: its name, and the `host:port` under which its broker answers that side."""

    name: str
    bootstrap: str


class SiteSilent(DaybookError, TimeoutError):
    """The site's broker does not answer, or not yet with a `site.control`."""


class ControlReader:
    """Reads the whole topic at each `read`: it is a handful of records, and a rebuilt site begins anew.

    A silent site is asked by a new client: one that has known the log of before holds what a rebuilt broker
    says of its leaders, whose epochs begin again, for outdated, and would wait for ever.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._place = TopicPartition(TOPIC, 0, OFFSET_BEGINNING)
        self._consumer: Consumer | None = None

    def read(self, seconds: float = ANSWER_SECONDS) -> Control:
        """What the site says now. Raises SiteSilent where it does not within `seconds`."""
        if self._consumer is None:
            self._consumer = _consumer(self._bootstrap)
        until = time.monotonic() + seconds
        try:
            _, end = self._consumer.get_watermark_offsets(self._place, timeout=seconds)
            if end == 0:
                raise SiteSilent(f"{TOPIC} at {self._bootstrap} has no record yet")
            self._consumer.assign([self._place])
            return self._read_to(self._consumer, end, until)
        except SiteSilent:
            self.close()
            raise
        except KafkaException as error:
            self.close()
            raise SiteSilent(f"{self._bootstrap}: {error.args[0].str()}") from error

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read_to(self, consumer: Consumer, end: int, until: float) -> Control:
        control = Control()
        while time.monotonic() < until:
            for record in consumer.consume(100, 0.1):
                error = record.error()
                if error is None:
                    control.take(record.key(), record.value())
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif record.offset() >= end:
                    return control
        raise SiteSilent(f"{TOPIC} at {self._bootstrap} could not be read in time")


def _consumer(bootstrap: str) -> Consumer:
    return clients.reader(
        bootstrap,
        {
            "fetch.wait.max.ms": 10,
            # a site that was away is heard again soon
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "socket.timeout.ms": 5000,
            "log_level": 0,
        },
    )


def ask(bootstrap: str, seconds: float = ANSWER_SECONDS) -> Control:
    """What a site says now, asked once. Raises SiteSilent."""
    reader = ControlReader(bootstrap)
    try:
        return reader.read(seconds)
    finally:
        reader.close()
