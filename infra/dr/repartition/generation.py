"""More partitions for a service's topics, every key's order kept: the log moves to a new generation.

Adding partitions to a topic sends a key's next events elsewhere than its first ones: two partitions, no
order. So the topics are written anew, while nobody writes:

1. fence every writer of the service, and write a slot layout that no worker was started for;
2. copy both inputs, events and answers beside the old ones, each key into its new partition, without
   foreign records;
3. verify the copies key by key; up to here the old topics are untouched;
4. switch: delete the old topics, make new ones under their names, fill them from the copies, verify again;
5. put the workers' positions at the inputs' ends, and the layout back.

The copies stay until all of it is done: killed in between, the same call goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.topics import TOPICS
from infra.base.errors import DaybookError
from infra.base.waiting import wait_until
from infra.dr.repartition.copying import Digest, NotCopied, copy, digest, require_same
from infra.dr.repartition.layout import close_layout, closed, open_layout
from infra.log.topics import Topic, create_topics
from services.kernel.log import clients
from services.kernel.log.reader import high_watermarks, partitions_of

STAGED = "next-generation"
SECONDS = 60.0

Show = Callable[[str], None]


@dataclass(frozen=True)
class Moved:
    """What one topic's move came to."""

    topic: str
    records: int
    keys: int
    partitions: int


class NotPossible(DaybookError):
    """The topics cannot be written anew now; the text says why and what to do."""


def repartition(
    bootstrap: str, service: str, partitions: int, wanted: Mapping[str, Topic], show: Show
) -> list[Moved]:
    """Move the service's topics to `partitions`. `wanted` has the topics' settings.

    The shop's processes must be down and the conversations over. Raises NotPossible, NotCopied, NotCaughtUp,
    OwnershipLost, KafkaException or TimeoutError; until the switch of a topic its old one is untouched.
    """
    admin = clients.admin(bootstrap)
    if not closed(bootstrap, service):
        require_more(bootstrap, service, partitions)
    close_layout(bootstrap, service)
    topics = [replace(wanted[name], partitions=partitions) for name in _moved(service)]
    left = [topic for topic in topics if not _done(admin, topic)]
    digests = [_staged(admin, bootstrap, topic, show) for topic in left]
    for topic, staged in zip(left, digests, strict=True):
        show(f"switching {topic.name}")
        _anew(admin, bootstrap, topic)
        copy(bootstrap, _stage_name(topic.name), topic.name, partitions, topic.name)
        require_same(staged, digest(bootstrap, topic.name, topic.name), topic.name)
    _anew(admin, bootstrap, replace(wanted[TOPICS[service].state], partitions=partitions))
    _positions_at_the_end(admin, bootstrap, service)
    _delete(admin, [_stage_name(topic.name) for topic in left])
    open_layout(bootstrap, service)
    return [
        Moved(topic.name, staged.records, len(staged.keys), partitions)
        for topic, staged in zip(left, digests, strict=True)
    ]


def _moved(service: str) -> tuple[str, ...]:
    """What is copied; the state topic is a cache and begins empty."""
    own = TOPICS[service]
    return *own.inputs, own.events, own.answers


def require_more(bootstrap: str, service: str, partitions: int) -> None:
    """Raises NotPossible where the service has as many already."""
    for topic in _moved(service):
        before = len(partitions_of(bootstrap, topic))
        if partitions <= before:
            raise NotPossible(f"{topic} has {before} partitions already: they can only become more")


def _done(admin: AdminClient, topic: Topic) -> bool:
    """Only a switch makes the new number of partitions, and its copy stays until all topics are done."""
    found = admin.list_topics(timeout=SECONDS).topics
    switched = topic.name in found and len(found[topic.name].partitions) == topic.partitions
    return switched and _stage_name(topic.name) not in found


def _staged(admin: AdminClient, bootstrap: str, topic: Topic, show: Show) -> Digest:
    """A verified copy beside the topic. One whose switch had begun was complete: it is taken as it is."""
    name, found = _stage_name(topic.name), admin.list_topics(timeout=SECONDS).topics
    if name in found:
        if topic.name not in found or len(found[topic.name].partitions) == topic.partitions:
            return digest(bootstrap, name, topic.name)
        _delete(admin, [name])
    show(f"copying {topic.name}")
    _create(bootstrap, replace(topic, name=name, retention_ms=-1))
    copied = copy(bootstrap, topic.name, name, topic.partitions, topic.name)
    if copied.foreign:
        show(f"left out {copied.foreign:,} foreign records of {topic.name}")
    show(f"verifying {copied.records:,} records of {topic.name}")
    staged = digest(bootstrap, name, topic.name)
    require_same(digest(bootstrap, topic.name, topic.name), staged, name)
    return staged


def _anew(admin: AdminClient, bootstrap: str, topic: Topic) -> None:
    if topic.name in admin.list_topics(timeout=SECONDS).topics:
        _delete(admin, [topic.name])
    _create(bootstrap, topic)


def _create(bootstrap: str, topic: Topic) -> None:
    """A topic that was just deleted may be in the way for a moment."""
    wait_until(
        lambda: topic.name in create_topics(bootstrap, {topic.name: topic}),
        f"{topic.name} is created in place of the deleted one",
        SECONDS,
        error=NotCopied,
    )


def _delete(admin: AdminClient, names: list[str]) -> None:
    if not names:
        return
    for future in admin.delete_topics(names).values():
        future.result(SECONDS)
    wait_until(
        lambda: not set(names) & admin.list_topics(timeout=SECONDS).topics.keys(),
        f"{', '.join(names)} are gone",
        SECONDS,
        error=NotCopied,
    )


def _positions_at_the_end(admin: AdminClient, bootstrap: str, service: str) -> None:
    """All commands were executed: the workers begin behind them."""
    places = [
        TopicPartition(topic, number, end)
        for topic in TOPICS[service].inputs
        for number, end in high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic)).items()
    ]
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{service}-workers", places)])
    for future in asked.values():
        for place in future.result(SECONDS).topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)


def _stage_name(topic: str) -> str:
    return f"{STAGED}.{topic}"
