"""A process that copies records with one of three promises; a drill kills it.

`python -m infra.lab.drills.cluster.copier BOOTSTRAP at-most-once|at-least-once|exactly-once SOURCE TARGET`

The kinds differ in the order of two steps. At most once: the position first, then the record. At least once: the record
first, then the position. Exactly once: both in one transaction.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from services.kernel.log import clients

BATCH = 100
# A slow step between the two, as most real ones are: that is when processes die.
WORK_SECONDS = 0.05
TIMEOUT = 60.0


def main(bootstrap: str, kind: str, source: str, target: str) -> int:
    """Copy to the end of the source as it is now; the exit code."""
    transactional = {"transactional.id": f"copier-{target}"} if kind == "exactly-once" else {}
    producer = clients.writer(bootstrap, {"enable.idempotence": bool(transactional), **transactional})
    if transactional:
        producer.init_transactions(TIMEOUT)  # ends what a predecessor left open
    consumer = clients.reader(bootstrap, {"group.id": f"copier-{target}"})
    (stored,) = consumer.committed([TopicPartition(source, 0)], TIMEOUT)
    consumer.assign([TopicPartition(source, 0, max(0, stored.offset))])
    while (records := _batch(consumer)) is not None:
        if not records:
            continue
        position = [TopicPartition(source, 0, records[-1].offset() + 1)]
        match kind:
            case "at-most-once":
                consumer.commit(offsets=position, asynchronous=False)
                time.sleep(WORK_SECONDS)
                _write(producer, target, records)
            case "at-least-once":
                _write(producer, target, records)
                time.sleep(WORK_SECONDS)
                consumer.commit(offsets=position, asynchronous=False)
            case _:
                producer.begin_transaction()
                _write(producer, target, records)
                time.sleep(WORK_SECONDS)
                producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT)
                producer.commit_transaction(TIMEOUT)
    consumer.close()
    return 0


def _batch(consumer: Consumer) -> list[Message] | None:
    """Some records; None at the end of the topic."""
    records = []
    for record in consumer.consume(BATCH, 1.0):
        error = record.error()
        if error is None:
            records.append(record)
        elif error.code() == KafkaError._PARTITION_EOF:
            return records or None
        else:
            raise KafkaException(error)
    return records


def _write(producer: Producer, target: str, records: list[Message]) -> None:
    for record in records:
        producer.produce(target, record.value(), record.key(), partition=0)
    if producer.flush(TIMEOUT):
        raise TimeoutError(f"{target} does not accept records")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
