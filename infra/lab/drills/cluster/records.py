"""Numbered records: written with a given `acks`, each remembered as it is acknowledged, and counted again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message

from infra.base.background import Background
from services.kernel.log import clients
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.transactions import produce

FLUSH_SECONDS = 30.0


class Numbered:
    """Writes records 0, 1, 2… whose values are their numbers and so many spaces.

    `acknowledged` are those that a delivery report called written; `refused` counts the errors of the others.
    """

    def __init__(self, bootstrap: str, topic: str, acks: str, padding: int = 0, **more: Any) -> None:
        self._topic, self._padding = topic, b" " * padding
        self._producer = clients.writer(
            bootstrap, {"acks": acks, "enable.idempotence": acks == "all", "log_level": 0, **more}
        )
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.refused: Counter[str] = Counter()

    def write(self, count: int) -> None:
        """So many more, without waiting for their acknowledgement."""
        for number in range(self.sent, self.sent + count):
            value = b"%d" % number + self._padding
            produce(self._producer, self._topic, value, str(number), on_delivery=self._delivered)
            self._producer.poll(0)
        self.sent += count

    def flush(self) -> None:
        """Wait for every delivery report."""
        self._producer.flush(FLUSH_SECONDS)

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        if error is None:
            self.acknowledged.add(int(record.key()))
        else:
            self.refused[error.name()] += 1


class Stream(Background):
    """Writes at a rate, in a thread of its own, between `with` and its end."""

    def __init__(self, records: Numbered, per_second: int) -> None:
        super().__init__("stream")
        self.records = records
        self._per_second = per_second

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.records.flush()

    def _work(self) -> None:
        began, behind = time.monotonic(), self.records.sent
        while not self._stopping.wait(0.01):
            due = int((time.monotonic() - began) * self._per_second)
            self.records.write(max(0, due - (self.records.sent - behind)))


@dataclass(frozen=True)
class Found:
    """What a topic holds of numbered records: how often each number."""

    times: Mapping[int, int]

    def lost(self, records: Numbered) -> set[int]:
        """Acknowledged and not there."""
        return records.acknowledged - self.times.keys()

    def doubled(self) -> int:
        """Records beyond the first of each number."""
        return sum(self.times.values()) - len(self.times)


def count(bootstrap: str, topic: str) -> Found:
    """Read the whole topic. Raises NotCaughtUp, KafkaException."""
    starts = dict.fromkeys(partitions_of(bootstrap, topic), 0)
    return Found(Counter(int(record.value()) for record in read_to_end(bootstrap, topic, starts)))
