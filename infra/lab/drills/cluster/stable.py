"""What committed readers can have now, while the cluster may be too small to decide anything."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from infra.lab.checker.evidence import LOGS
from infra.log.event_log import event_in_any_epoch
from services.kernel.log import clients
from services.kernel.log.reader import partitions_of

READ_SECONDS = 60.0


def readable_events(bootstrap: str) -> tuple[set[str], list[str]]:
    """The ids of all events that a read_committed reader gets, and the partitions that gave no end in time.

    A reader that asks for the end first is told OFFSET_NOT_AVAILABLE where the last replica became leader
    alone: one that just reads gets what was known as committed. Records behind a transaction that nobody can
    decide now come later. Raises KafkaException where the broker refuses for good.
    """
    places = [(topic, number) for topic in LOGS for number in partitions_of(bootstrap, topic)]
    consumer = clients.reader(bootstrap, {"log_level": 0})
    silent = set(places)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in places])
        sizes = Counter(topic for topic, _ in places)
        events = (event_in_any_epoch(each, sizes[each.topic()]) for each in _until_ends(consumer, silent))
        ids = {metadata.id for metadata in events if metadata is not None}
    finally:
        consumer.close()
    return ids, [f"{topic}/{number}" for topic, number in sorted(silent)]


def _until_ends(consumer: Consumer, silent: set[tuple[str, int]]) -> Iterator[Message]:
    """Every record; a partition leaves `silent` when its end is seen."""
    until = time.monotonic() + READ_SECONDS
    while silent and time.monotonic() < until:
        for record in consumer.consume(1000, 0.2):
            error = record.error()
            if error is None:
                yield record
            elif error.code() == KafkaError._PARTITION_EOF:
                silent.discard((record.topic(), record.partition()))
            elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
