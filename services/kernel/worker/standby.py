"""Standing by: the same worker on a passive site, folding the mirrored log, mute."""

from __future__ import annotations

from typing import Any

from services.kernel.log.reader import events_follower, sound
from services.kernel.record.envelope import now_micros
from services.kernel.worker.slot import Slot

IDLE_SECONDS = 0.1
BATCH = 1000


class Standby:
    """Keeps a slot warm: `turn` folds what came, until the site becomes active and the slot is opened."""

    def __init__(self, slot: Slot[Any, Any, Any]) -> None:
        slot.stand_by()
        self._slot = slot
        self._consumer = events_follower(slot.config.bootstrap, slot.fold.positions)

    def turn(self) -> int:
        """Fold what has come; how many records. Raises KafkaException."""
        records = sound(self._consumer.consume(BATCH, IDLE_SECONDS))
        if records:
            with self._slot.quiet:
                for record in records:
                    self._slot.fold.take(record)
                for partition in self._slot.partitions.values():
                    partition.expire(now_micros())
                    partition.evict_unchanged(BATCH)
        return len(records)

    def close(self) -> None:
        self._consumer.close()
