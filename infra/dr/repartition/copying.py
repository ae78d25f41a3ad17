"""One topic's committed records into another, every key in its new partition, in its old order.

What is foreign is left out and counted: in a log, what the rule calls so; in commands and answers, what has
no key or does not stand in its key's partition. Decisions and recorded epochs name no offset and stay valid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

from infra.base.errors import DaybookError
from infra.log.event_log import EVENT_TOPICS, read_log
from services.kernel.log import clients
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import Event, Opening
from services.kernel.log.transactions import LARGEST_RECORD, produce
from services.kernel.record.envelope import murmur2

FLUSH_SECONDS = 120.0

Part: TypeAlias = Event | Opening | None
"""What a record is to the copy; None: a command or an answer."""


class NotCopied(DaybookError):
    """A copy is not complete, or not the same; the text says where. Nothing was switched."""


class Copied(NamedTuple):
    """How many records came to the copy, openings of epochs apart, and how many foreign ones did not."""

    records: int
    foreign: int


@dataclass(frozen=True)
class Digest:
    """What a topic holds of each key: a hash over its records in order, with values, headers and times."""

    keys: dict[bytes, bytes]
    records: int


@dataclass
class _Source:
    """The records of a topic that are to be copied; `name` is its own where `topic` is a copy of it."""

    bootstrap: str
    topic: str
    name: str
    foreign: int = 0

    def records(self, number: int) -> Iterator[tuple[Message, Part]]:
        """Of one partition, in order."""
        if self.name in EVENT_TOPICS:
            for record, kind in read_log(self.bootstrap, self.topic, {number: 0}, name=self.name):
                if isinstance(kind, (Event, Opening)):
                    yield record, kind
                else:
                    self.foreign += 1
            return
        partitions = len(partitions_of(self.bootstrap, self.topic))
        for record in read_to_end(self.bootstrap, self.topic, {number: 0}):
            if record.key() is not None and _home(record.key(), partitions) == number:
                yield record, None
            else:
                self.foreign += 1


def copy(bootstrap: str, source: str, target: str, partitions: int, name: str) -> Copied:
    """Append all of `source`, by its own `name`, to `target`, which has `partitions`. Raises NotCopied.

    Source partitions are merged by epoch and by the time of recording, which never go back within one: nor
    do they in the target. An epoch is opened in all partitions of the target before its first event. Nobody
    may write to either.
    """
    refused: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    producer = clients.writer(
        bootstrap,
        {"linger.ms": 20, "message.max.bytes": LARGEST_RECORD, "on_delivery": delivered, "log_level": 3},
    )
    read, copied, opened = _Source(bootstrap, source, name), 0, 0
    streams = [read.records(number) for number in partitions_of(bootstrap, source)]
    for record, part in merge(*streams, key=_age):
        if isinstance(part, Opening):
            places = range(partitions) if part.epoch > opened else range(0)
            opened = max(opened, part.epoch)
        else:
            places = range(home := _home(record.key(), partitions), home + 1)
            copied += 1
        for place in places:
            about = {"headers": record.headers() or [], "timestamp": record.timestamp()[1]}
            produce(producer, target, record.value(), record.key(), partition=place, **about)
        producer.poll(0)
    if producer.flush(FLUSH_SECONDS) or refused:
        raise NotCopied(f"{target} did not take every record: {refused[:1] or 'too slow'}")
    return Copied(copied, read.foreign)


def digest(bootstrap: str, topic: str, name: str) -> Digest:
    """Read all of it: what is foreign and what opens an epoch does not count."""
    source = _Source(bootstrap, topic, name)
    hashes: dict[bytes, bytes] = {}
    records = 0
    for number in partitions_of(bootstrap, topic):
        for record, part in source.records(number):
            if isinstance(part, Opening):
                continue
            key = record.key()
            content = repr((record.value(), record.headers() or [], record.timestamp()[1])).encode()
            hashes[key] = hashlib.sha256(hashes.get(key, b"") + content).digest()
            records += 1
    return Digest(hashes, records)


def require_same(source: Digest, target: Digest, where: str) -> None:
    """Raises NotCopied unless every key has the same records in the same order."""
    different = [key for key in source.keys | target.keys if source.keys.get(key) != target.keys.get(key)]
    if different or source.records != target.records:
        named = ", ".join(key.decode(errors="replace") for key in different[:3])
        raise NotCopied(f"{where}: {len(different)} keys differ ({named}), of {len(source.keys)}")


def _home(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _age(copied: tuple[Message, Part]) -> tuple[int, int, int]:
    """Epoch, an opening before events, and time of recording; commands and answers have a timestamp only."""
    record, part = copied
    match part:
        case Opening(epoch=epoch):
            return epoch, 0, 0
        case Event(metadata=metadata):
            return metadata.epoch, 1, metadata.recorded_at
        case None:
            return 0, 0, record.timestamp()[1]
