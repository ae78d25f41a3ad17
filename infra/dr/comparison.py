"""Two logs compared: are they equal?

Equal means per partition, in order, with keys, values, headers and times. Foreign records are not of the log: they are
skipped, as are canaries. Each log is streamed; in memory are the digests of one topic at a time (16 bytes each).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from confluent_kafka import Message

from infra.log.event_log import EVENT_TOPICS, read_log
from infra.log.topics import mirrored_topics
from infra.stack.mirror_settings import CANARY
from services.kernel.log.reader import read_to_end
from services.kernel.log.rule import Foreign

DIGEST_BYTES = 16


@dataclass(frozen=True)
class SiteComparison:
    """`records` were equal; `different` are the first differing records (topic/partition at the nth record);
    `missing` records at the end of the active log are not in the passive one."""

    records: int
    different: tuple[str, ...]
    missing: int


@dataclass
class _Partition:
    """The digests of the passive log, and how many of them the active log has, too."""

    passive: bytearray = field(default_factory=bytearray)
    equal: int = 0
    missing: int = 0
    differs: bool = False

    def follow(self, digest: bytes) -> None:
        """The next record of the active log."""
        begin = self.equal * DIGEST_BYTES
        if self.differs or begin == len(self.passive):
            self.missing += not self.differs
        elif self.passive.startswith(digest, begin):
            self.equal += 1
        else:
            self.differs = True


def compare(active: str, passive: str) -> SiteComparison:
    """Compare the logs at two addresses, up to the end of the passive one. Raises NotCaughtUp.

    After a record that is duplicated, missing or out of order everything differs.
    """
    compared = dict[str, _Partition]()
    for topic in (topic for topic in mirrored_topics() if topic != CANARY):
        partitions = defaultdict[int, _Partition](_Partition)
        # the passive log is read first: the active one has all of it, also while both grow
        for record in _records(passive, topic):
            partitions[record.partition()].passive += record_digest(record)
        for record in _records(active, topic):
            partitions[record.partition()].follow(record_digest(record))
        compared |= {f"{topic}/{number}": own for number, own in sorted(partitions.items())}
    # what only the passive log has is different, too
    different = {name: own for name, own in compared.items() if own.equal * DIGEST_BYTES < len(own.passive)}
    return SiteComparison(
        sum(own.equal for own in compared.values()),
        tuple(f"{name} at record {own.equal}" for name, own in different.items()),
        sum(own.missing for name, own in compared.items() if name not in different),
    )


def _records(bootstrap: str, topic: str) -> Iterator[Message]:
    if topic not in EVENT_TOPICS:
        return read_to_end(bootstrap, topic)
    return (record for record, kind in read_log(bootstrap, topic) if not isinstance(kind, Foreign))


def record_digest(record: Message) -> bytes:
    """A few bytes for the whole record. A record and its mirrored copy have the same."""
    content = (record.key(), record.value(), record.timestamp(), record.headers())
    return blake2b(repr(content).encode(), digest_size=DIGEST_BYTES).digest()
