"""Whether two sites hold the same log: per partition, in order, with keys, values, headers and times.

Foreign records are not of the log: they are skipped on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest

from confluent_kafka import Message

from infra.log.event_log import EVENT_TOPICS, read_log
from infra.log.topics import mirrored_topics
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import Foreign

# A canary a second; each is worth nothing an instant later.
UNCOMPARED = ("site.canary",)


@dataclass(frozen=True)
class SiteComparison:
    """`records` were equal; `different` are places (topic/partition at the nth record) that were not;
    `missing` records of the active log are not in the passive one, at its end."""

    records: int
    different: tuple[str, ...]
    missing: int


def compare(active: str, passive: str) -> SiteComparison:
    """Compare the logs at two addresses, the passive one as far as it is. Raises NotCaughtUp.

    A record copied twice, left out or in another place makes everything behind it different.
    """
    records, missing, different = 0, 0, []
    for topic in mirrored_topics():
        if topic in UNCOMPARED:
            continue
        for number in partitions_of(active, topic):
            equal, at, left = _partition(active, passive, topic, number)
            records, missing = records + equal, missing + left
            if at is not None:
                different.append(f"{topic}/{number} at record {at}")
    return SiteComparison(records, tuple(different), missing)


def _partition(active: str, passive: str, topic: str, number: int) -> tuple[int, int | None, int]:
    """How many records are equal, which is the first that is not, and how many only the active one has."""
    # the passive log is read first: what it has then, the active one has too, also while both grow
    there = [_digest(record) for record in _records(passive, topic, number)]
    here = map(_digest, _records(active, topic, number))
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


def _digest(record: Message) -> bytes:
    """Sixteen bytes for all that a record holds: a partition is kept in memory as these."""
    content = (record.key(), record.value(), record.timestamp(), record.headers())
    return blake2b(repr(content).encode(), digest_size=16).digest()
