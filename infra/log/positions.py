"""A consumer group that starts again from a moment, and how many records it then receives twice.

By time, because two clusters share time: offsets differ between sites, and the mirror keeps timestamps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from infra.base.errors import NotDone
from infra.log.topics import ends_by_partition
from services.kernel.log import clients
from services.kernel.log.reader import Partition, offsets_at, read_to_end

SECONDS, FIRST_SECONDS = 30.0, 5.0
COUNTED = 500_000  # offsets of one partition that are read to count records; beyond, a bound is shown
_WORKERS = "executes commands: what it has already executed must not be executed again"
_REFUSED = {
    "order-workers": _WORKERS,
    "inventory-workers": _WORKERS,
    "daybook-projection": "keeps positions beside its rows: `./daybook replay --into` fills them again",
}


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
    """What a new start at `since_ms` (milliseconds since 1970) means; changes nothing.

    A position before that moment stays: continuing from there skips nothing. Raises NotDone,
    TimeoutError, KafkaException where the broker does not respond.
    """
    admin = clients.admin(bootstrap)
    existing = admin.list_topics(timeout=FIRST_SECONDS).topics  # fails soon where the broker is away
    if unknown := [topic for topic in topics if topic not in existing]:
        raise NotDone(f"there is no topic {', '.join(unknown)}")
    _require_idle(admin, group)
    ends = ends_by_partition(bootstrap, topics)
    committed = committed_positions(admin, group, list(ends))
    starts = {topic: offsets_at(bootstrap, topic, since_ms, SECONDS) for topic in topics}
    return [
        _rewind(bootstrap, (topic, number), committed.get((topic, number)), starts[topic][number], end)
        for (topic, number), end in ends.items()
    ]


def _rewind(bootstrap: str, partition: Partition, committed: int | None, start: int, end: int) -> Rewind:
    if committed is not None:
        start, end = min(start, committed), committed
    exact = end - start <= COUNTED
    again = _count(bootstrap, partition, start, end) if exact else end - start
    return Rewind(*partition, committed, start, again, exact)


def rewind(bootstrap: str, group: str, planned: Iterable[Rewind]) -> None:
    """Store the new positions. Raises NotDone where the group was started meanwhile."""
    positions = [TopicPartition(move.topic, move.partition, move.start) for move in planned if move.moves]
    if not positions:
        return
    admin = clients.admin(bootstrap)
    futures = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, positions)])
    try:
        stored = futures[group].result(SECONDS)
    except KafkaException as error:
        raise NotDone(f"{group} was not moved: {error.args[0].str()}") from error
    for position in stored.topic_partitions:
        if position.error is not None:
            where = f"{position.topic}/{position.partition}"
            raise NotDone(f"{group} was not moved on {where}: {position.error}")


def committed_positions(
    admin: AdminClient, group: str, partitions: Iterable[Partition]
) -> dict[Partition, int]:
    """A group's positions, without the partitions that it has not begun."""
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(*partition) for partition in partitions])
    futures = admin.list_consumer_group_offsets([request], require_stable=True, request_timeout=SECONDS)
    try:
        positions = futures[group].result(SECONDS).topic_partitions
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {
        (position.topic, position.partition): position.offset
        for position in positions
        if position.offset >= 0
    }


def _require_idle(admin: AdminClient, group: str) -> None:
    if reason := _REFUSED.get(group):
        raise NotDone(f"{group} {reason}")
    try:
        state = admin.describe_consumer_groups([group], request_timeout=SECONDS)[group].result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return
        raise
    if state.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        count = len(state.members)
        raise NotDone(f"{group} is being read by {count} consumer{'s' * (count != 1)}: stop them first")


def _count(bootstrap: str, partition: Partition, start: int, end: int) -> int:
    """Committed records from `start` to before `end`: markers and aborted records do not count."""
    topic, number = partition
    records = read_to_end(bootstrap, topic, {number: start}, {number: end}, timeout=SECONDS)
    return sum(1 for _ in takewhile(lambda record: record.offset() < end, records))
