"""Where a mirror begins: MirrorMaker2's own positions, read and written as its source connector does.

With exactly-once on, MirrorMaker2 commits its position in the same transaction as the data: the last record
of `mm2-offsets.<source>.internal` at the target is the truth. A record's key is
`["MirrorSourceConnector",{"cluster":<source>,"partition":<n>,"topic":<name>}]`, byte for byte as Connect's
JSON converter writes it, for the topic is compacted; its value is `{"offset":<n>}`, the last source offset
that was copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic

from infra.base.waiting import wait_until
from infra.stack.mirror_settings import positions_topic
from services.kernel.log import clients
from services.kernel.log.reader import high_watermarks, partitions_of, read_to_end

CONNECTOR = "MirrorSourceConnector"
PARTITIONS = 1  # as the mirror is configured
SECONDS = 30.0
# A position lies on the last record, and one transaction's markers and aborted records may lie behind it.
TAIL = 2_000

Place = tuple[str, int]


def internal_topics(alias: str) -> frozenset[str]:
    """What MirrorMaker2 keeps for a flow from or to the cluster `alias`."""
    kinds = ("mm2-offsets", "mm2-configs", "mm2-status", "mm2-offset-syncs")
    return frozenset({*(f"{kind}.{alias}.internal" for kind in kinds), f"{alias}.checkpoints.internal"})


def reset_internal(bootstrap: str, alias: str) -> list[str]:
    """Forget everything that a mirror knew of `alias`; answers the topics that were removed."""
    admin = _admin(bootstrap)
    present = sorted(internal_topics(alias) & set(admin.list_topics(timeout=SECONDS).topics))
    for future in (admin.delete_topics(present) if present else {}).values():
        future.result(SECONDS)
    wait_until(
        lambda: set(present) & set(admin.list_topics(timeout=SECONDS).topics),
        "the mirror's internal topics are removed",
        SECONDS,
        enough=lambda left: not left,
    )
    return present


def seed(target: str, source_name: str, positions: Mapping[Place, int]) -> None:
    """Make the mirror from `source_name` begin behind these source offsets, by (topic, partition).

    `target` is the broker that is mirrored to; its old positions must be gone (`reset_internal`). Raises
    KafkaException where the topic is there already, TimeoutError where the broker does not take the records.
    """
    topic = positions_topic(source_name)
    config = {"cleanup.policy": "compact"}
    admin = _admin(target)  # its requests end with it
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(SECONDS)
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = clients.writer(target, {"message.timeout.ms": int(SECONDS * 1000), "log_level": 0})
    for (name, number), offset in sorted(positions.items()):
        key = msgspec.json.encode([CONNECTOR, {"cluster": source_name, "partition": number, "topic": name}])
        value = msgspec.json.encode({"offset": offset})
        producer.produce(topic, value, key, on_delivery=delivered)
    if producer.flush(SECONDS + 1):
        raise TimeoutError(f"{topic} did not take the positions")
    if failures:
        raise KafkaException(failures[0])


def last_data(bootstrap: str, topics: Sequence[str]) -> dict[Place, int]:
    """The offset of the last committed record of each partition; a partition without records is absent."""
    with ThreadPoolExecutor(len(topics)) as pool:  # writes rest meanwhile
        each = pool.map(lambda topic: _last_of(bootstrap, topic), topics)
        return {(topic, number): at for topic, last in zip(topics, each, strict=True) for number, at in last}


def _last_of(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    ends = high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic))
    found = [(number, _last(bootstrap, topic, number, end)) for number, end in ends.items()]
    return [(number, offset) for number, offset in found if offset is not None]


def _last(bootstrap: str, topic: str, number: int, end: int) -> int | None:
    """Look at the end first; a long row of aborted records takes a longer look."""
    span = TAIL
    while True:
        start = max(0, end - span)
        offsets = [
            record.offset() for record in read_to_end(bootstrap, topic, {number: start}, {number: end})
        ]
        if offsets or start == 0:
            return max(offsets, default=None)
        span *= 10


def _admin(bootstrap: str) -> AdminClient:
    return clients.admin(bootstrap, {"log_level": 3})
