"""A consumer group that begins again at a moment, and what that costs in records that come twice.

By time, because time is what two clusters share: offsets differ between sites, the mirror keeps timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from infra.base.errors import DaybookError
from services.kernel.log import clients
from services.kernel.log.reader import high_watermarks, partitions_of, read_to_end

SECONDS, FIRST_SECONDS = 30.0, 5.0
COUNTED = 500_000  # offsets of one partition that are read to count what comes again; beyond, a bound is told
_WORKERS = "executes commands: what it has answered must not be asked again"
_REFUSED = {
    "order-workers": _WORKERS,
    "inventory-workers": _WORKERS,
    "daybook-projection": "keeps positions beside its rows: `./daybook replay --into` fills them anew",
}

Place = tuple[str, int]


class NotRewindable(DaybookError):
    """This group must not, or cannot now, be moved; the text says why and what to do."""


class NoSuchTopic(DaybookError):
    """The broker has no such topic."""


@dataclass(frozen=True)
class Rewind:
    """One partition. `committed` is the group's position, None where it has none; `start` is its next one.

    `again` counts committed records from `start` to `committed`; without a position, to the log's end: the
    most that can have been read before, at another site. Exact, or a bound.
    """

    topic: str
    partition: int
    committed: int | None
    start: int
    again: int
    exact: bool = True

    @property
    def moves(self) -> bool:
        return self.start != self.committed


def plan(bootstrap: str, group: str, topics: Sequence[str], since_ms: int) -> list[Rewind]:
    """What beginning again at `since_ms` (milliseconds since 1970) means; changes nothing.

    A position before that moment stays: going on from there leaves nothing out. Raises NotRewindable,
    NoSuchTopic, TimeoutError, KafkaException where the broker does not answer.
    """
    admin = clients.admin(bootstrap, {"log_level": 0})
    there = admin.list_topics(timeout=FIRST_SECONDS).topics  # a broker that is away is told soon
    if unknown := [topic for topic in topics if topic not in there]:
        raise NoSuchTopic(f"there is no topic {', '.join(unknown)}")
    _require_idle(admin, group)
    places = [(topic, number) for topic in topics for number in partitions_of(bootstrap, topic)]
    committed, starts = _committed(admin, group, places), _offsets_at(admin, places, since_ms)
    ends = {
        (topic, number): end
        for topic in topics
        for number, end in high_watermarks(bootstrap, topic, [n for t, n in places if t == topic]).items()
    }
    rewinds = [
        Rewind(topic, number, at, start if at is None else min(start, at), 0)
        for topic, number in places
        for at, start in [(committed.get((topic, number)), starts.get((topic, number), ends[topic, number]))]
    ]
    return _priced(bootstrap, rewinds, ends)


def rewind(bootstrap: str, group: str, planned: Iterable[Rewind]) -> None:
    """Store the new positions. Raises NotRewindable where the group was started meanwhile."""
    positions = [TopicPartition(one.topic, one.partition, one.start) for one in planned if one.moves]
    if not positions:
        return
    admin = clients.admin(bootstrap, {"log_level": 3})
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, positions)])
    try:
        stored = asked[group].result(SECONDS)
    except KafkaException as error:
        raise NotRewindable(f"{group} was not moved: {error.args[0].str()}") from error
    for place in stored.topic_partitions:
        if place.error is not None:
            raise NotRewindable(f"{group} was not moved on {place.topic}/{place.partition}: {place.error}")


def _require_idle(admin: AdminClient, group: str) -> None:
    if reason := _REFUSED.get(group):
        raise NotRewindable(f"{group} {reason}")
    try:
        found = admin.describe_consumer_groups([group], request_timeout=SECONDS)[group].result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return
        raise
    if found.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        count = len(found.members)
        raise NotRewindable(f"{group} is being read by {count} consumer{'s' * (count != 1)}: stop them first")


def _committed(admin: AdminClient, group: str, places: Sequence[Place]) -> dict[Place, int]:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in places])
    found = admin.list_consumer_group_offsets([wanted], require_stable=True, request_timeout=SECONDS)
    try:
        answered = found[group].result(SECONDS).topic_partitions
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {(at.topic, at.partition): at.offset for at in answered if at.offset >= 0}


def _offsets_at(admin: AdminClient, places: Sequence[Place], since_ms: int) -> dict[Place, int]:
    """The first record at or after that moment; a place that has none is absent."""
    wanted = {TopicPartition(*place): OffsetSpec.for_timestamp(since_ms) for place in places}
    found = admin.list_offsets(wanted, request_timeout=SECONDS)
    offsets = {(at.topic, at.partition): answer.result(SECONDS).offset for at, answer in found.items()}
    return {place: offset for place, offset in offsets.items() if offset >= 0}


def _priced(bootstrap: str, rewinds: Sequence[Rewind], ends: Mapping[Place, int]) -> list[Rewind]:
    spans = [
        (one.start, ends[one.topic, one.partition] if one.committed is None else one.committed)
        for one in rewinds
    ]
    priced = []
    for one, (start, end) in zip(rewinds, spans, strict=True):
        exact = end - start <= COUNTED
        again = _count(bootstrap, one, end) if exact else end - start
        priced.append(replace(one, again=again, exact=exact))
    return priced


def _count(bootstrap: str, one: Rewind, end: int) -> int:
    """Committed records from `one.start` to before `end`: markers and aborted records are nobody's price."""
    records = read_to_end(
        bootstrap, one.topic, {one.partition: one.start}, {one.partition: end}, timeout=SECONDS
    )
    return sum(1 for _ in takewhile(lambda record: record.offset() < end, records))
