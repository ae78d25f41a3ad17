"""Standing by: the same worker on a passive site, folding the mirrored log, mute."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from services.kernel.clients import client
from services.kernel.envelope import now_micros
from services.kernel.log_reader import sound
from services.kernel.slot import Slot

IDLE_SECONDS = 0.1
BATCH = 1000


class Standby:
    """Keeps a slot warm: `turn` folds what came, until the site becomes active and the slot is opened."""

    def __init__(self, slot: Slot[Any, Any, Any]) -> None:
        slot.stand_by()
        self._slot = slot
        self._consumer = Consumer(
            client(slot.config.bootstrap)
            | {
                "group.id": "daybook-reads-without-a-group",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign(
            [
                TopicPartition(topic, number, offset)
                for topic, positions in slot.fold.positions.items()
                for number, offset in positions.items()
            ]
        )

    def turn(self) -> int:
        """Fold what has come; how many records. Raises `VersionGap` or KafkaException."""
        records = sound(self._consumer.consume(BATCH, IDLE_SECONDS))
        if records:
            with self._slot.quiet:
                for record in records:
                    self._slot.fold.take(record)
                for partition in self._slot.partitions.values():
                    partition.expire(now_micros())
                    partition.rest(BATCH)
        return len(records)

    def close(self) -> None:
        self._consumer.close()
