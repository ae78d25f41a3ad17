"""One topic's committed records into another, every key in its new partition, in its old order.

A batch of an inbox is copied as single messages. Foreign records are skipped and counted: in a log, those of the
rule; among messages and recorded outcomes, those without a key or outside their key's partition. Decisions and
recorded epochs name no offset and stay valid.
"""

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
from services.kernel.record.codec import messages_in, own_headers
from services.kernel.record.envelope import Headers, murmur2

FLUSH_SECONDS = 120.0

Part: TypeAlias = Event | Opening | None
"""The kind of a copied record; None: a command or a recorded outcome."""


class NotCopied(DaybookError):
    """A copy is not complete, or not the same; the text says where. Nothing was switched."""


class Copyable(NamedTuple):
    """A record as it is copied."""

    key: bytes
    value: bytes | None
    headers: Headers
    timestamp: int
    part: Part


class Copied(NamedTuple):
    """The number of copied records without openings of epochs, and of skipped foreign ones."""

    records: int
    foreign: int


@dataclass(frozen=True)
class Digest:
    """A topic's content: for each key a hash over its records in order, with values, headers and times."""

    keys: dict[bytes, bytes]
    records: int


@dataclass
class _Source:
    """The records of a topic that are to be copied; `name` is the original's where `topic` is a copy."""

    bootstrap: str
    topic: str
    name: str
    foreign: int = 0

    def records(self, number: int) -> Iterator[Copyable]:
        """Of one partition, in order."""
        if self.name in EVENT_TOPICS:
            for record, kind in read_log(self.bootstrap, self.topic, {number: 0}, name=self.name):
                if isinstance(kind, (Event, Opening)):
                    yield _copyable(record, kind)
                else:
                    self.foreign += 1
            return
        partitions = len(partitions_of(self.bootstrap, self.topic))
        for record in read_to_end(self.bootstrap, self.topic, {number: 0}):
            messages = _messages(record)
            own = [message for message in messages if _home(message.key, partitions) == number]
            self.foreign += max(1, len(messages)) - len(own)
            yield from own


def copy(bootstrap: str, source: str, target: str, partitions: int, name: str) -> Copied:
    """Append all of `source`, by its own `name`, to `target`, which has `partitions`. Raises NotCopied.

    Source partitions are merged by epoch and by the time of recording, which never go back within one: nor
    do they in the target. An epoch is opened in all partitions of the target before its first event. Nothing
    else may write to either.
    """
    refused: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    options = {"linger.ms": 20, "message.max.bytes": LARGEST_RECORD, "on_delivery": delivered}
    producer = clients.writer(bootstrap, options)
    read, copied, opened = _Source(bootstrap, source, name), 0, 0
    streams = [read.records(number) for number in partitions_of(bootstrap, source)]
    for record in merge(*streams, key=_age):
        if isinstance(record.part, Opening):
            numbers = range(partitions) if record.part.epoch > opened else range(0)
            opened = max(opened, record.part.epoch)
        else:
            numbers = range(home := _home(record.key, partitions), home + 1)
            copied += 1
        for number in numbers:
            about = {"headers": record.headers, "timestamp": record.timestamp}
            produce(producer, target, record.value, record.key, partition=number, **about)
        producer.poll(0)
    if producer.flush(FLUSH_SECONDS) or refused:
        raise NotCopied(f"{target} did not take every record: {refused[:1] or 'too slow'}")
    return Copied(copied, read.foreign)


def digest(bootstrap: str, topic: str, name: str) -> Digest:
    """Read the whole topic, without foreign records and openings of epochs."""
    source = _Source(bootstrap, topic, name)
    hashes: dict[bytes, bytes] = {}
    records = 0
    for number in partitions_of(bootstrap, topic):
        for record in source.records(number):
            if isinstance(record.part, Opening):
                continue
            content = repr((record.value, record.headers, record.timestamp)).encode()
            hashes[record.key] = hashlib.sha256(hashes.get(record.key, b"") + content).digest()
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


def _copyable(record: Message, part: Part) -> Copyable:
    return Copyable(record.key(), record.value(), record.headers() or [], record.timestamp()[1], part)


def _messages(record: Message) -> list[Copyable]:
    """A batch of an inbox as single records: its messages may belong to different partitions of the copy."""
    if record.key() is not None:
        return [_copyable(record, None)]
    return [
        Copyable(message.key, message.value, own_headers(record, message), record.timestamp()[1], None)
        for message in messages_in(record)
        if message.key is not None
    ]


def _age(record: Copyable) -> tuple[int, int, int]:
    """Epoch, an opening before events, and time of recording; commands and recorded outcomes have only a timestamp."""
    match record.part:
        case Opening(epoch=epoch):
            return epoch, 0, 0
        case Event(metadata=metadata):
            return metadata.epoch, 1, metadata.recorded_at
        case None:
            return 0, 0, record.timestamp
