"""Records that a command appends, and the wait until the broker has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

ANY_PARTITION = -1  # chosen by the key


class NewRecord(NamedTuple):
    """A record to append; without a `value` it is a tombstone."""

    topic: str
    key: str | bytes
    value: bytes | None
    partition: int = ANY_PARTITION
    headers: Sequence[tuple[str, bytes]] = ()


def deliver(producer: Producer, records: Iterable[NewRecord], seconds: float) -> None:
    """Append the records. Raises TimeoutError, with the broker's reason, unless all are written in time."""
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(f"{message.topic()} did not take a record: {error.str()}")

    for topic, key, value, partition, headers in records:
        producer.produce(topic, value, key, partition, headers=list(headers), on_delivery=delivered)
    if (waiting := producer.flush(seconds)) or refused:
        raise TimeoutError(
            refused[0] if refused else f"{waiting} records were not written within {seconds:.0f} s"
        )
