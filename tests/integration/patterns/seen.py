"""Records as read models want them."""

from collections.abc import Iterable

from confluent_kafka import Message

from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import FIRST_EPOCH, Journal
from services.projection.engine.read_model import Arrival, Batch


class _Seen:
    def __init__(self, record: Message) -> None:
        self.topic, self.partition, self.offset = record.topic(), record.partition(), record.offset()
        self.key, self.value, self.headers = record.key(), record.value(), record.headers()


def records(bootstrap: str, topic: str) -> list[Message]:
    """What is committed in all partitions."""
    return list(read_to_end(bootstrap, topic, dict.fromkeys(partitions_of(bootstrap, topic), 0)))


def arrivals(found: Iterable[Message]) -> list[Arrival]:
    """Those of a topic of two partitions, or of several such topics."""
    places: dict[tuple[str, int], list[_Seen]] = {}
    for record in found:
        places.setdefault((record.topic(), record.partition()), []).append(_Seen(record))
    batches = [Batch(place, 0, 0, records) for place, records in places.items()]
    return [arrival for batch in batches for arrival in batch.read(0, FIRST_EPOCH, 2, Journal()).arrivals]
