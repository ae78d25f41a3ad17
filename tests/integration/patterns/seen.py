"""Records as read models want them."""

from collections.abc import Iterable

from confluent_kafka import Message

from services.kernel.log_reader import partitions_of, read_to_end
from services.kernel.read_model import Arrival, arrive


class _Seen:
    def __init__(self, record: Message) -> None:
        self.topic, self.partition, self.offset = record.topic(), record.partition(), record.offset()
        self.key, self.value, self.headers = record.key(), record.value(), record.headers()


def records(bootstrap: str, topic: str) -> list[Message]:
    """What is committed in all partitions."""
    return list(read_to_end(bootstrap, topic, dict.fromkeys(partitions_of(bootstrap, topic), 0)))


def arrivals(found: Iterable[Message]) -> list[Arrival]:
    return [arrive(_Seen(record)) for record in found]
