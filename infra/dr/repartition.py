"""More partitions for a service's topics, every key's order kept: the log moves to a new generation.

Adding partitions to a topic sends a key's next events to another partition than its first ones, which loses their
order. So the topics are written again, while nothing else writes:

1. fence every writer of the service, and write a slot layout that no worker was started for;
2. copy both inputs, events and recorded outcomes beside the old topics, each key into its new partition, without
   foreign records;
3. verify the copies key by key; up to here the old topics are untouched;
4. switch: delete the old topics, make new ones under their names, fill them from the copies, verify again;
5. put the workers' positions at the inputs' ends, empty the read models, and put the layout back.

The copies stay until the topics are switched, and the write block until the processes run again: after a kill, the same
call continues where it stopped.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import asyncpg
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.topics import TOPICS
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.dr.inputs import drain
from infra.dr.plan import Show
from infra.dr.topic_copy import Digest, NotCopied, copy, digest, require_same
from infra.log.control import close_layout, lift_hold, open_layout, write_hold
from infra.log.database import in_database
from infra.log.topics import Topic, create_topics, delete_topics, ends_by_partition
from infra.stack.database import open_shop_database
from infra.stack.platform import platform_of
from infra.stack.shop import DATABASE, SERVICES, USER, database_url, kind_of
from infra.stack.site import Site
from services.kernel.log import clients
from services.kernel.log.control import read_control
from services.kernel.log.reader import partition_counts, partitions_of

STAGED = "next-generation"
SECONDS = 60.0


@dataclass(frozen=True)
class Moved:
    """The result of one topic's move."""

    topic: str
    records: int
    keys: int
    partitions: int


def repartition(
    bootstrap: str, service: str, partitions: int, catalogue: Mapping[str, Topic], show: Show
) -> list[Moved]:
    """Move the service's topics to `partitions`. `catalogue` has the topics' settings.

    The shop's processes must be down and the conversations over. At the return the layout is still closed. Raises
    NotDone, NotCopied, NotCaughtUp, OwnershipLost, KafkaException or TimeoutError; until the switch of a topic its old
    one is untouched.
    """
    admin = clients.admin(bootstrap)
    if not closed(bootstrap, service):
        require_more(bootstrap, service, partitions)
    close_layout(bootstrap, service)
    topics = [replace(catalogue[name], partitions=partitions) for name in _moved(service)]
    left = [topic for topic in topics if not _done(admin, topic)]
    digests = [_staged(admin, bootstrap, topic, show) for topic in left]
    for topic, staged in zip(left, digests, strict=True):
        show(f"switching {topic.name}")
        _recreate(admin, bootstrap, topic)
        copy(bootstrap, _stage_name(topic.name), topic.name, partitions, topic.name)
        require_same(staged, digest(bootstrap, topic.name, topic.name), topic.name)
    _recreate(admin, bootstrap, replace(catalogue[TOPICS[service].state], partitions=partitions))
    _positions_at_the_end(admin, bootstrap, service)
    delete_topics(admin, [_stage_name(topic.name) for topic in left])
    return [
        Moved(topic.name, staged.records, len(staged.keys), partitions)
        for topic, staged in zip(left, digests, strict=True)
    ]


def _moved(service: str) -> tuple[str, ...]:
    """The topics that are copied; the state topic is a cache and starts empty."""
    own = TOPICS[service]
    return *own.inputs, own.events, own.answers


def require_more(bootstrap: str, service: str, partitions: int) -> None:
    """Raises NotDone where the service has as many already."""
    for topic in _moved(service):
        before = len(partitions_of(bootstrap, topic))
        if partitions <= before:
            raise NotDone(f"{topic} has {before} partitions already: they can only become more")


def _all_have(bootstrap: str, service: str, partitions: int) -> bool:
    counts = partition_counts(bootstrap)
    return all(counts.get(topic) == partitions for topic in _moved(service))


def _done(admin: AdminClient, topic: Topic) -> bool:
    """Whether the topic was switched: it has the new number of partitions, and its copy is gone."""
    existing = admin.list_topics(timeout=SECONDS).topics
    switched = topic.name in existing and len(existing[topic.name].partitions) == topic.partitions
    return switched and _stage_name(topic.name) not in existing


def _staged(admin: AdminClient, bootstrap: str, topic: Topic, show: Show) -> Digest:
    """Make a verified copy beside the topic. A copy whose switch has begun is complete, and is reused."""
    name, existing = _stage_name(topic.name), admin.list_topics(timeout=SECONDS).topics
    if name in existing:
        if topic.name not in existing or len(existing[topic.name].partitions) == topic.partitions:
            return digest(bootstrap, name, topic.name)
        delete_topics(admin, [name])
    show(f"copying {topic.name}")
    _create(bootstrap, replace(topic, name=name, retention_ms=-1))
    copied = copy(bootstrap, topic.name, name, topic.partitions, topic.name)
    if copied.foreign:
        show(f"left out {copied.foreign:,} foreign records of {topic.name}")
    show(f"verifying {copied.records:,} records of {topic.name}")
    staged = digest(bootstrap, name, topic.name)
    require_same(digest(bootstrap, topic.name, topic.name), staged, name)
    return staged


def _recreate(admin: AdminClient, bootstrap: str, topic: Topic) -> None:
    if topic.name in admin.list_topics(timeout=SECONDS).topics:
        delete_topics(admin, [topic.name])
    _create(bootstrap, topic)


def _create(bootstrap: str, topic: Topic) -> None:
    """Create the topic; a deleted one may exist for a moment longer."""
    wait_until(
        lambda: topic.name in create_topics(bootstrap, {topic.name: topic}),
        f"{topic.name} is created in place of the deleted one",
        SECONDS,
        error=NotCopied,
    )


def _positions_at_the_end(admin: AdminClient, bootstrap: str, service: str) -> None:
    """All commands were executed: the workers start after them."""
    positions = [
        TopicPartition(*partition, end)
        for partition, end in ends_by_partition(bootstrap, TOPICS[service].inputs).items()
    ]
    futures = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(f"{service}-workers", positions)]
    )
    for future in futures.values():
        for partition in future.result(SECONDS).topic_partitions:
            if partition.error is not None:
                raise KafkaException(partition.error)


def _stage_name(topic: str) -> str:
    return f"{STAGED}.{topic}"


def closed(bootstrap: str, service: str) -> bool:
    """Whether a change of the service's topics has begun and not ended."""
    return read_control(bootstrap).layout(service).number < 0


PROCESSES = tuple(service.name for row in SERVICES for service in row)
DATABASE_SECONDS = 30.0


def repartition_shop(
    settings: StackSettings, service: str, partitions: int, topics: Mapping[str, Topic], show: Show
) -> list[Moved]:
    """Refuse orders, let conversations end, write the topics again, and accept orders again.

    At the return the processes run, and restore. After a failure they stay down until a second call, which continues
    where this one stopped. Raises NotDone and what `repartition` raises.
    """
    site = Site(settings)
    with site.journal.sole_change(f"topics repartition {service}"):
        return _repartition(site, service, partitions, topics, show)


def _repartition(
    site: Site, service: str, partitions: int, topics: Mapping[str, Topic], show: Show
) -> list[Moved]:
    platform = platform_of(site.settings)
    if len(platform.sites()) > 1:
        raise NotDone("the log is mirrored: offsets of both sites would no longer be those of one log")
    control = read_control(site.bootstrap)
    epoch = control.role.epoch
    if epoch > 1:
        raise NotDone("a promotion's record names offsets of this log: it must stay as it is")
    if closed(site.bootstrap, service) and not control.held:
        slots = control.layout(service).slots
        raise NotDone(f"a change of slots was interrupted: first run `./daybook scale {service} {slots}`")
    # An interrupted call had looked, and dropped the database.
    with suppress(asyncpg.InvalidCatalogNameError):
        in_database(site.database_url, _require_no_decisions, DATABASE_SECONDS)
    if control.held == "quiesced" and _all_have(site.bootstrap, service, partitions):
        # An interrupted call had opened it again: its last steps are repeated.
        close_layout(site.bootstrap, service)
    if not closed(site.bootstrap, service):
        require_more(site.bootstrap, service, partitions)
        show("waiting for conversations to end")
        write_hold(site.bootstrap, "quiesced", epoch)
        try:
            drain(site.bootstrap, SECONDS)
        except BaseException:
            lift_hold(site.bootstrap)
            raise
    show("stopping the shop's processes")
    platform.stop(site, *reversed(_own(site)))
    wait_until(
        lambda: _alive(site), "the processes stop", SECONDS, enough=lambda left: not left, error=NotDone
    )
    moved = repartition(site.bootstrap, service, partitions, topics, show)
    show("resetting the read models")
    in_database(database_url(site.settings, USER, "postgres"), _empty, DATABASE_SECONDS)
    asyncio.run(open_shop_database(site.settings))
    open_layout(site.bootstrap, service)
    platform.start(site, *_own(site))
    lift_hold(site.bootstrap)
    return moved


def _own(site: Site) -> list[str]:
    """The site's processes without the stores."""
    return [name for name in platform_of(site.settings).processes(site) if kind_of(name) in PROCESSES]


def _alive(site: Site) -> list[str]:
    processes = platform_of(site.settings).processes(site)
    return [name for name in _own(site) if processes[name].running]


async def _require_no_decisions(connection: asyncpg.Connection) -> None:
    """Operators' decisions about single events are only in PostgreSQL, by offset."""
    for table in ("parked", "skipped"):
        exists = await connection.fetchval(f"SELECT to_regclass('{table}') IS NOT NULL")
        if exists and (count := await connection.fetchval(f"SELECT count(*) FROM {table}")):
            raise NotDone(f"{count} events are {table}: decide first, see `./daybook parked`")


async def _empty(connection: asyncpg.Connection) -> None:
    """Positions are offsets of the old topics; the projection rebuilds everything else from the log."""
    await connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)", timeout=SECONDS)
    await connection.execute(f"CREATE DATABASE {DATABASE}", timeout=SECONDS)
