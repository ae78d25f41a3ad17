"""The mirror's exact lag, and the positions from which it starts.

With exactly-once, MirrorMaker2 commits its position in the same transaction as the records: the last record of
`mm2-offsets.<source>.internal` at the target is the truth. A partition is caught up when no committed record follows
the position at the source: the consumer's end-of-partition event then comes before any record, whatever markers and
aborted records lie between.

The key of a position is `["MirrorSourceConnector",{"cluster":<source>,"partition":<n>,"topic":<name>}]`, byte for byte
as Connect's JSON converter writes it, because the topic is compacted. Its value is `{"offset":<n>}`, the last source
offset that was copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from infra.base.waiting import TooLate, wait_until
from infra.log.topics import delete_topics, ends_by_partition, mirrored_topics
from infra.stack.mirror_settings import CANARY, positions_topic
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.reader import WINDOW, LogTail, NotKnown, Partition


@dataclass(frozen=True)
class MirrorLag:
    """`events`: committed at the source and not yet at the target, for every mirrored partition but the
    canary's, which always grows. `oldest_seconds`: the age of the oldest of them, 0 where there is none.
    `exact` is false where a partition has too many to count: there `events` counts offsets, markers included.
    """

    events: Mapping[Partition, int]
    oldest_seconds: float
    exact: bool = True

    @property
    def total(self) -> int:
        return sum(self.events.values())


class MirrorMeter:
    """Reads the lag repeatedly: it follows the positions and does not read them from the beginning each time.

    `source` is the site's name, `source_bootstrap` its link's address. `reached` are the mirror's positions, read last.
    """

    def __init__(self, source_bootstrap: str, target_bootstrap: str, source: str) -> None:
        self.reached: Mapping[Partition, int] = {}
        self._topics = [topic for topic in mirrored_topics() if topic != CANARY]
        self._positions = _Positions(target_bootstrap, source)
        self._tail = LogTail(source_bootstrap)

    def read(self, seconds: float = 30.0) -> MirrorLag:
        """The lag now. Raises TimeoutError where a site does not respond within `seconds`."""
        until = time.monotonic() + seconds
        self.reached = reached = dict(self._positions.read(until))
        try:
            partitions = self._tail.partitions(self._topics, max(0.1, until - time.monotonic()))
            starts = [(partition, reached.get(partition, -1) + 1) for partition in partitions]
            behind = self._tail.behind(starts, max(0.1, until - time.monotonic()))
        except NotKnown as error:
            raise TimeoutError(f"the source of the mirror does not respond: {error}") from error
        times = [left.oldest_ms for left in behind.values() if left.oldest_ms is not None]
        oldest = max(0.0, time.time() - min(times) / 1000) if times else 0.0
        exact = all(left.records < WINDOW for left in behind.values())
        return MirrorLag({partition: left.records for (partition, _), left in behind.items()}, oldest, exact)

    def wait(
        self,
        most: int,
        seconds: float,
        error: Callable[[TooLate], Exception] = lambda late: late,
        see: Callable[[int], object] = lambda _: None,
    ) -> int:
        """Waits until at most so many events are behind, and returns how many are. A site that does not respond in time
        is read again: it may be busy, while another starts beside it. `see` receives each reading. Raises the result
        of `error` after `seconds`, by default TooLate."""

        def behind() -> int:
            lag = self.read()
            see(lag.total)
            if not lag.exact:
                time.sleep(FAR_SECONDS)
            return lag.total

        what, later = f"the mirror is at most {most} events behind", (TimeoutError,)
        return wait_until(behind, what, seconds, enough=most.__ge__, later=later, error=error)

    def __enter__(self) -> MirrorMeter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._positions.close()
        self._tail.close()


class _Positions:
    """Follows the mirror's own positions: the last source offset of each partition."""

    def __init__(self, target_bootstrap: str, source: str) -> None:
        self._topic = positions_topic(source)
        self._consumer = clients.reader(target_bootstrap, {"fetch.wait.max.ms": 10})
        self._partitions: set[int] = set()
        self._reached: dict[Partition, int] = {}

    def read(self, until: float) -> Mapping[Partition, int]:
        """The committed positions; empty before the mirror's first start."""
        if not self._partitions and not self._assign(until):
            return {}
        todo, assigned = set(self._partitions), self._consumer.assignment()
        self._consumer.resume(assigned)
        # Seeking to the end makes each partition report its end once more.
        for partition in self._consumer.position(assigned):
            if partition.offset >= 0:
                self._consumer.seek(partition)
        while todo:
            for record in _records(self._consumer, until):
                if record.error() is not None:
                    todo.discard(record.partition())
                else:
                    self._take(record.key(), record.value())
        self._consumer.pause(assigned)  # at its end it would fetch a hundred times a second
        return self._reached

    def close(self) -> None:
        self._consumer.close()

    def _assign(self, until: float) -> bool:
        try:
            existing = self._consumer.list_topics(timeout=max(0.1, until - time.monotonic())).topics
        except KafkaException as error:
            raise TimeoutError(f"the target of the mirror does not respond: {error.args[0].str()}") from error
        if self._topic not in existing:
            return False
        self._partitions = set(existing[self._topic].partitions)
        self._consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in self._partitions])
        return True

    def _take(self, key: bytes, value: bytes | None) -> None:
        connector, source = msgspec.json.decode(key)
        if connector != CONNECTOR:
            return
        partition = (source["topic"], source["partition"])
        if value is None:
            self._reached.pop(partition, None)
        else:
            self._reached[partition] = msgspec.json.decode(value)["offset"]


def mirror_positions(target_bootstrap: str, source: str) -> Mapping[Partition, int]:
    """The source offset of the last mirrored record of each partition. Raises TimeoutError."""
    with closing(_Positions(target_bootstrap, source)) as positions:
        return positions.read(time.monotonic() + SECONDS)


def _records(consumer: Consumer, until: float) -> list[Any]:
    """Some records and end-of-partition events. Raises TimeoutError after `until`."""
    messages = consumer.consume(2000, 0.05)
    if not messages and time.monotonic() > until:
        raise TimeoutError("the mirror's lag could not be read in time")
    return [own for own in messages if own.error() is None or own.error().code() == KafkaError._PARTITION_EOF]


CONNECTOR = "MirrorSourceConnector"
PARTITIONS = 1  # as the mirror is configured
SECONDS = 30.0
FAR_SECONDS = 3.0  # between two readings of a mirror that is far behind: each takes thousands of records
# A position lies on the last record. Markers and a few aborted records may lie behind it; behind more, it reads on.
TAIL = 200


def internal_topics(alias: str) -> frozenset[str]:
    """The internal topics of MirrorMaker2 for a flow from or to the cluster `alias`."""
    kinds = ("mm2-offsets", "mm2-configs", "mm2-status", "mm2-offset-syncs")
    return frozenset({*(f"{kind}.{alias}.internal" for kind in kinds), f"{alias}.checkpoints.internal"})


def reset_internal(bootstrap: str, alias: str) -> list[str]:
    """Remove the internal topics of a mirror from or to `alias`. Returns their names."""
    admin = clients.admin(bootstrap)
    present = sorted(internal_topics(alias) & set(admin.list_topics(timeout=SECONDS).topics))
    delete_topics(admin, present)
    return present


def seed(target: str, source_name: str, positions: Mapping[Partition, int]) -> None:
    """Make the mirror from `source_name` start after these source offsets, by (topic, partition).

    `target` is the broker that is mirrored to; its old positions must be gone (`reset_internal`). Raises
    KafkaException where the topic exists already, TimeoutError where the broker does not take the records.
    """
    topic, admin = positions_topic(source_name), clients.admin(target)  # its requests end with it
    new = NewTopic(topic, PARTITIONS, config={"cleanup.policy": "compact"})
    admin.create_topics([new])[topic].result(SECONDS)
    records = [
        NewRecord(
            topic,
            msgspec.json.encode([CONNECTOR, {"cluster": source_name, "partition": number, "topic": name}]),
            msgspec.json.encode({"offset": offset}),
        )
        for (name, number), offset in sorted(positions.items())
    ]
    options = {"message.timeout.ms": int(SECONDS * 1000)}
    deliver(clients.writer(target, options), records, SECONDS + 1)


def last_data(bootstrap: str, topics: Sequence[str]) -> dict[Partition, int]:
    """The offset of the last committed record of each partition; a partition without records is absent.

    One client reads all of them: connecting takes longest, and writes are paused meanwhile. It reads the ends first,
    and further back only behind many aborted records. Raises TimeoutError.
    """
    ends = ends_by_partition(bootstrap, topics)
    last, span, until = dict[Partition, int](), TAIL, time.monotonic() + SECONDS
    with clients.reader(bootstrap, {"fetch.wait.max.ms": 10}) as consumer:
        while ends:
            consumer.assign([TopicPartition(*at, max(0, end - span)) for at, end in ends.items()])
            reading = set(ends)
            while reading:
                for record in _records(consumer, until):
                    partition = (record.topic(), record.partition())
                    if record.error() is None:
                        last[partition] = record.offset()
                    elif record.offset() >= ends[partition]:
                        reading.discard(partition)
            ends = {at: end for at, end in ends.items() if at not in last and end > span}
            span *= 10
    return last
