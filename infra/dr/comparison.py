"""Two logs compared: are they equal?

Equal means per partition, in order, with keys, values, headers and times. Foreign records are not of the log: they are
skipped, as are canaries. Each log is streamed; in memory are the digests of one partition at a time (16 bytes each).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest

from confluent_kafka import Message

from infra.log.event_log import EVENT_TOPICS, read_log
from infra.log.topics import mirrored_topics
from infra.stack.mirror_settings import CANARY
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import Foreign


@dataclass(frozen=True)
class SiteComparison:
    """`records` were equal; `different` are the first differing records (topic/partition at the nth record);
    `missing` records at the end of the active log are not in the passive one."""

    records: int
    different: tuple[str, ...]
    missing: int


def compare(active: str, passive: str) -> SiteComparison:
    """Compare the logs at two addresses, up to the end of the passive one. Raises NotCaughtUp.

    After a record that is duplicated, missing or out of order everything differs.
    """
    records, missing, different = 0, 0, []
    for topic in (topic for topic in mirrored_topics() if topic != CANARY):
        for number in partitions_of(active, topic):
            equal, at, left = _partition(active, passive, topic, number)
            records, missing = records + equal, missing + left
            if at is not None:
                different.append(f"{topic}/{number} at record {at}")
    return SiteComparison(records, tuple(different), missing)


def _partition(active: str, passive: str, topic: str, number: int) -> tuple[int, int | None, int]:
    """The number of equal records, the first that differs, and the number that only the active log has."""
    # the passive log is read first: the active one has all of it, also while both grow
    there = [record_digest(record) for record in _records(passive, topic, number)]
    here = map(record_digest, _records(active, topic, number))
    equal = missing = 0
    for ours, theirs in zip_longest(here, there):
        if theirs is None:
            missing += 1
        elif ours != theirs:
            return equal, equal, 0
        else:
            equal += 1
    return equal, None, missing


def _records(bootstrap: str, topic: str, number: int) -> Iterator[Message]:
    if topic not in EVENT_TOPICS:
        return read_to_end(bootstrap, topic, {number: 0})
    log = read_log(bootstrap, topic, {number: 0})
    return (record for record, kind in log if not isinstance(kind, Foreign))


def record_digest(record: Message) -> bytes:
    """Sixteen bytes for the whole record. A record and its mirrored copy have the same."""
    content = (record.key(), record.value(), record.timestamp(), record.headers())
    return blake2b(repr(content).encode(), digest_size=16).digest()
