"""Records in the form that read models read."""

from collections.abc import Iterable

from confluent_kafka import Message

from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import FIRST_EPOCH, Journal
from services.projection.engine.read_model import Arrival, Batch, Record, record_of


def records(bootstrap: str, topic: str) -> list[Message]:
    """The committed records of all partitions."""
    return list(read_to_end(bootstrap, topic, dict.fromkeys(partitions_of(bootstrap, topic), 0)))


def arrivals(messages: Iterable[Message]) -> list[Arrival]:
    """The arrivals of one or more topics of two partitions."""
    by_partition: dict[tuple[str, int], list[Record]] = {}
    for record in messages:
        by_partition.setdefault((record.topic(), record.partition()), []).append(record_of(record))
    batches = [Batch(partition, 0, 0, records) for partition, records in by_partition.items()]
    return [arrival for batch in batches for arrival in batch.read(0, FIRST_EPOCH, 2, Journal()).arrivals]
