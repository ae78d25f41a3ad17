"""How far the mirror is, exactly: what is committed at the source and not yet at the target.

Under exactly-once the mirror's positions commit together with the records they stand for. So a partition is
caught up when, at the source, nothing committed follows the position: the consumer's end-of-partition event
comes before any record, whatever markers and aborted data lie between.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from infra.log.topics import mirrored_topics
from infra.stack.mirror_settings import CANARY, positions_topic
from services.kernel.log import clients

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class MirrorLag:
    """`events`: committed at the source and not yet at the target, for every mirrored partition but the
    canary's, which never rests. `oldest_seconds`: the age of the oldest of them, 0 where there is none.
    `exact` is false where counting was cut short: `events` then counts offsets, markers included.
    """

    events: Mapping[Place, int]
    oldest_seconds: float
    exact: bool = True

    @property
    def total(self) -> int:
        return sum(self.events.values())


class MirrorMeter:
    """Reads the lag again and again: positions are followed, not read from the beginning each time.

    `source` is the site's name, `source_bootstrap` the way to its broker (its link, from the other site).
    A context manager.
    """

    def __init__(
        self, source_bootstrap: str, target_bootstrap: str, source: str, topics: Sequence[str] | None = None
    ) -> None:
        self._topics = [topic for topic in topics or mirrored_topics() if topic != CANARY]
        self._source = source_bootstrap
        self._positions = _Positions(target_bootstrap, source)
        self._reader = _consumer(source_bootstrap)
        self._admin = clients.admin(source_bootstrap, {"log_level": 0})
        self._places: list[Place] = []

    def read(self, seconds: float = 30.0, at_most: int | None = None) -> MirrorLag:
        """The lag now. `at_most` bounds the records that are read to count them.

        Raises TimeoutError where a site does not answer within `seconds`.
        """
        until = time.monotonic() + seconds
        reached = self._positions.read(until)
        try:
            ends = self._stable_ends(until)
        except KafkaException as error:
            raise TimeoutError(f"the source of the mirror does not answer: {error.args[0].str()}") from error
        starts = {place: reached.get(place, -1) + 1 for place in ends}
        behind = {place: start for place, start in starts.items() if ends[place] > start}
        if at_most is not None and sum(ends[place] - start for place, start in behind.items()) > at_most:
            return self._bound(ends, starts, behind, until)
        counts, oldest = self._count(behind, until, stop_at=None)
        return MirrorLag({place: counts.get(place, 0) for place in ends}, _age(oldest))

    def __enter__(self) -> MirrorMeter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._positions.close()
        self._reader.close()

    def _stable_ends(self, until: float) -> dict[Place, int]:
        """Where the committed part of each partition ends at the source."""
        seconds = max(0.1, until - time.monotonic())
        if not self._places:
            found = self._admin.list_topics(timeout=seconds).topics
            self._places = [(t, p) for t in self._topics if t in found for p in found[t].partitions]
        wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for topic, partition in self._places}
        answers = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=seconds
        )
        return {(at.topic, at.partition): answer.result().offset for at, answer in answers.items()}

    def _bound(
        self,
        ends: Mapping[Place, int],
        starts: Mapping[Place, int],
        behind: Mapping[Place, int],
        until: float,
    ) -> MirrorLag:
        _, oldest = self._count(behind, until, stop_at=1)
        return MirrorLag({at: max(0, ends[at] - starts[at]) for at in ends}, _age(oldest), exact=False)

    def _count(
        self, starts: Mapping[Place, int], until: float, stop_at: int | None
    ) -> tuple[dict[Place, int], int | None]:
        """Committed records from `starts` on, by place, and the oldest timestamp (ms) among them."""
        counts, oldest, todo = dict.fromkeys(starts, 0), None, set(starts)
        self._reader.assign([TopicPartition(*place, start) for place, start in starts.items()])
        while todo:
            for record in _records(self._reader, until):
                place = (record.topic(), record.partition())
                if record.error() is not None:
                    todo.discard(place)
                    continue
                counts[place] += 1
                sent = record.timestamp()[1]
                oldest = sent if oldest is None else min(oldest, sent)
                if stop_at is not None and counts[place] >= stop_at:
                    todo.discard(place)
        self._reader.unassign()
        return counts, oldest


class _Positions:
    """Follows the mirror's own record of how far it is: the last source offset of each partition."""

    def __init__(self, target_bootstrap: str, source: str) -> None:
        self._topic = positions_topic(source)
        self._consumer = _consumer(target_bootstrap)
        self._partitions: set[int] = set()
        self._reached: dict[Place, int] = {}

    def read(self, until: float) -> Mapping[Place, int]:
        """To the end of what is committed; empty before the mirror's first start."""
        if not self._partitions and not self._assign(until):
            return {}
        # Each partition must say once more that it is at its end: seeking there makes it say so.
        todo = set(self._partitions)
        for place in self._consumer.position(self._consumer.assignment()):
            if place.offset >= 0:
                self._consumer.seek(place)
        while todo:
            for record in _records(self._consumer, until):
                if record.error() is not None:
                    todo.discard(record.partition())
                else:
                    self._take(record.key(), record.value())
        return self._reached

    def close(self) -> None:
        self._consumer.close()

    def _assign(self, until: float) -> bool:
        try:
            found = self._consumer.list_topics(timeout=max(0.1, until - time.monotonic())).topics
        except KafkaException as error:
            raise TimeoutError(f"the target of the mirror does not answer: {error.args[0].str()}") from error
        if self._topic not in found:
            return False
        self._partitions = set(found[self._topic].partitions)
        self._consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in self._partitions])
        return True

    def _take(self, key: bytes, value: bytes | None) -> None:
        connector, source = msgspec.json.decode(key)
        if connector != "MirrorSourceConnector":
            return
        place = (source["topic"], source["partition"])
        if value is None:
            self._reached.pop(place, None)
        else:
            self._reached[place] = msgspec.json.decode(value)["offset"]


def mirror_positions(target_bootstrap: str, source: str, seconds: float = 30.0) -> Mapping[Place, int]:
    """The source offset of the last mirrored record of each partition. Raises TimeoutError."""
    positions = _Positions(target_bootstrap, source)
    try:
        return positions.read(time.monotonic() + seconds)
    finally:
        positions.close()


def mirror_lag(source_bootstrap: str, target_bootstrap: str, source: str, seconds: float = 30.0) -> MirrorLag:
    """The exact lag, read once. Raises TimeoutError where a site does not answer."""
    with MirrorMeter(source_bootstrap, target_bootstrap, source) as meter:
        return meter.read(seconds)


def caught_up(source_bootstrap: str, target_bootstrap: str, source: str, seconds: float = 30.0) -> bool:
    """Whether all that is committed at the source is committed at the target. Raises TimeoutError."""
    return mirror_lag(source_bootstrap, target_bootstrap, source, seconds).total == 0


def _consumer(bootstrap: str) -> Consumer:
    return clients.reader(
        bootstrap, {"fetch.wait.max.ms": 10, "reconnect.backoff.max.ms": 500, "log_level": 0}
    )


def _records(consumer: Consumer, until: float) -> list[Any]:
    """Some records and end-of-partition events. Raises TimeoutError after `until`."""
    found = consumer.consume(2000, 0.05)
    if not found and time.monotonic() > until:
        raise TimeoutError("the mirror's lag could not be read in time")
    return [
        each for each in found if each.error() is None or each.error().code() == KafkaError._PARTITION_EOF
    ]


def _age(sent: int | None) -> float:
    return 0.0 if sent is None else max(0.0, time.time() - sent / 1000)
