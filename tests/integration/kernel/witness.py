"""A reader of both logs that runs while workers are killed: every record that it receives is visible (I5)."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, Message, TopicPartition

from infra.log.event_log import EVENT_TOPICS, event_in_any_epoch
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.record.codec import what_is_there
from tests.integration.api.processes import eventually


class Witness(threading.Thread):
    """Reads like a read model, from the first record; `seen` are the ids of the events."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.seen: set[str] = set()
        self._stopped = threading.Event()
        self._partitions = {log: partitions_of(bootstrap, log) for log in EVENT_TOPICS}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "witness",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        self._consumer.assign(
            [
                TopicPartition(log, number, 0)
                for log, numbers in self._partitions.items()
                for number in numbers
            ]
        )
        self.start()

    def run(self) -> None:
        while not self._stopped.is_set():
            for record in what_is_there(self._consumer, 500, 0.1):
                if record.error() is None:
                    self._take(record)

    def _take(self, record: Message) -> None:
        if (about := event_in_any_epoch(record, len(self._partitions[record.topic()]))) is not None:
            self.seen.add(about.id)

    def has_seen(self, event_ids: set[str]) -> None:
        """Waits until it has read all of these: a reader without records would prove nothing."""
        eventually(lambda: event_ids <= self.seen, "the witness did not read the whole log")

    def close(self) -> None:
        self._stopped.set()
        self.join()
        self._consumer.close()


def aborted(bootstrap: str, topic: str) -> int:
    """Number of records of the topic that were written and never committed, apart from those of settling."""
    starts = dict.fromkeys(partitions_of(bootstrap, topic), 0)
    everything = sum(
        1 for record in read_to_end(bootstrap, topic, starts, committed_only=False) if record.headers()
    )
    return everything - sum(1 for _ in read_to_end(bootstrap, topic, starts))
