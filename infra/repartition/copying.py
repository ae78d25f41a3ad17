"""One topic's committed records into another, every key in its new partition, in its old order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge

from confluent_kafka import KafkaError, Message, Producer

from services.kernel.envelope import partition_of, read_headers
from services.kernel.log_reader import partitions_of, read_to_end
from services.kernel.transactions import LARGEST_RECORD, produce

FLUSH_SECONDS = 120.0


class NotCopied(Exception):
    """A copy is not complete, or not the same; the text says where. Nothing was switched."""


@dataclass(frozen=True)
class Digest:
    """What a topic holds of each key: a hash over its records in order, with values, headers and times."""

    keys: dict[bytes, bytes]
    records: int


def copy(bootstrap: str, source: str, target: str, partitions: int) -> int:
    """Append all of `source` to `target`, which has `partitions`; how many records. Raises NotCopied.

    Source partitions are merged by epoch and by the time of recording, which never go back within one: nor
    do they in the target. Nobody may write to either.
    """
    refused: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.max.bytes": LARGEST_RECORD,
            "on_delivery": delivered,
            "log_level": 3,
        }
    )
    copied = 0
    streams = [_records(bootstrap, source, number) for number in partitions_of(bootstrap, source)]
    for record in merge(*streams, key=_age):
        where = partition_of(record.key().decode(), partitions)
        about = {"headers": record.headers() or [], "timestamp": record.timestamp()[1]}
        produce(producer, target, record.value(), record.key(), partition=where, **about)
        producer.poll(0)
        copied += 1
    if producer.flush(FLUSH_SECONDS) or refused:
        raise NotCopied(f"{target} did not take every record: {refused[:1] or 'too slow'}")
    return copied


def digest(bootstrap: str, topic: str) -> Digest:
    """Read all of it. Raises NotCopied where a key stands in a partition that is not its own."""
    numbers = partitions_of(bootstrap, topic)
    hashes: dict[bytes, bytes] = {}
    records = 0
    for number in numbers:
        for record in _records(bootstrap, topic, number):
            key = record.key()
            if partition_of(key.decode(), len(numbers)) != number:
                raise NotCopied(f"{key.decode()} stands in {topic}/{number}")
            content = repr((record.value(), record.headers() or [], record.timestamp()[1])).encode()
            hashes[key] = hashlib.sha256(hashes.get(key, b"") + content).digest()
            records += 1
    return Digest(hashes, records)


def require_same(source: Digest, target: Digest, where: str) -> None:
    """Raises NotCopied unless every key has the same records in the same order."""
    different = [key for key in source.keys | target.keys if source.keys.get(key) != target.keys.get(key)]
    if different or source.records != target.records:
        named = ", ".join(key.decode() for key in different[:3])
        raise NotCopied(f"{where}: {len(different)} keys differ ({named}), of {len(source.keys)}")


def _records(bootstrap: str, topic: str, number: int) -> Iterator[Message]:
    return read_to_end(bootstrap, topic, {number: 0})


def _age(record: Message) -> tuple[int, int]:
    """Epoch and time of recording; a record without our headers (an answer) has its timestamp only."""
    headers = record.headers()
    if not headers:
        return 0, record.timestamp()[1] * 1000
    metadata = read_headers(headers)
    return metadata.epoch, metadata.recorded_at
