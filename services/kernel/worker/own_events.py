"""What an owner does in its own events topic beside its batches: open the epoch, read back what it wrote."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from contracts.kernel.records import EpochOpened
from contracts.topics import SERVICE_OF
from services.kernel.log.journal import TOPIC as JOURNAL
from services.kernel.log.reader import events_follower, sound
from services.kernel.log.rule import OPENING_KEY
from services.kernel.log.transactions import Transactions, produce
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, uuid7, write_headers
from services.kernel.worker.fold import Fold

MOST = 5_000  # events that are read back in one turn of the loop


class OwnEvents:
    """One slot's events. `fold` was folded to the end after the predecessor was fenced."""

    def __init__(
        self, bootstrap: str, topic: str, fold: Fold[Any], transactions: Transactions, quiet: threading.Lock
    ) -> None:
        self._fold, self._transactions, self._quiet = fold, transactions, quiet
        self._consumer = events_follower(bootstrap, {topic: fold.positions[topic]})
        fold.owner = True

    def read_back(self) -> None:
        """Read what came, and record in the journal what somebody else wrote.

        Raises `OwnershipLost`, `Aborted` or KafkaException.
        """
        with self._quiet:
            for record in sound(self._consumer.consume(MOST, 0)):
                self._fold.take(record)
        if suspects := self._fold.suspects:
            records = [(judged.stream, encode(JOURNAL, judged)) for judged in suspects]

            def stage(producer: Producer) -> None:
                for key, value in records:
                    produce(producer, JOURNAL, value, key)

            self._transactions.run_again(stage)
            suspects.clear()


def open_epoch(
    transactions: Transactions, topic: str, partitions: Sequence[int], epoch: int, site: str
) -> None:
    """Write the first record of an epoch into these partitions, all or none: before any event of the epoch.

    Raises `OwnershipLost` or `Aborted`.
    """
    now, opening = now_micros(), uuid7()
    value = encode(topic, EpochOpened(epoch, site, now))
    about = Metadata(
        id=opening,
        type=EpochOpened.TYPE,
        subject=OPENING_KEY,
        source=f"daybook/{SERVICE_OF[topic]}",
        recorded_at=now,
        correlation_id=opening,
        causation_id=opening,
        epoch=epoch,
    )

    def stage(producer: Producer) -> None:
        for number in partitions:
            produce(producer, topic, value, OPENING_KEY, partition=number, headers=write_headers(about))

    transactions.run_again(stage)
