"""A mirror of a few lines: `python -m … SOURCE TARGET TOPIC`. Consume, produce in transactions, for ever.

Committed records only, with keys, headers, timestamps and partitions; it stores no positions.
"""

from __future__ import annotations

import sys

from confluent_kafka import KafkaException, Message, Producer, TopicPartition

from services.kernel.log.clients import follower
from services.kernel.log.reader import partitions_of
from services.kernel.log.transactions import Transactions

BATCH = 2_000


def main(source: str, target: str, topic: str) -> None:
    transactions = Transactions(target, ["bench-mirror-0", "bench-mirror-1"], 10_000)
    transactions.fence()
    beginning = [TopicPartition(topic, number, 0) for number in partitions_of(source, topic)]
    consumer = follower(source, beginning, {"queued.min.messages": 20_000, "fetch.wait.max.ms": 10})
    while True:
        records = consumer.consume(BATCH, 0.02)
        for record in records:
            if record.error() is not None:
                raise KafkaException(record.error())
        if records:
            transactions.run(lambda producer, batch=records: _copy(producer, batch), [], None)  # type: ignore[misc]


def _copy(producer: Producer, records: list[Message]) -> None:
    for record in records:
        producer.produce(
            record.topic(),
            record.value(),
            record.key(),
            partition=record.partition(),
            timestamp=record.timestamp()[1],
            headers=record.headers(),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
