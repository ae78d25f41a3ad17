"""The topics: created from `contracts/topics.yaml`, compared with it, and kept safe for acknowledged records."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from contracts.kernel.records import CommandInputs, SiteRole, SlotLayout
from contracts.lock import ROOT
from contracts.topics import TOPICS
from infra.base.errors import DaybookError
from infra.base.waiting import wait_until
from infra.log.event_log import record_epochs
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.reader import Partition, high_watermarks, partitions_of, read_to_end
from services.kernel.record.codec import encode
from services.kernel.record.envelope import now_micros

CONTROL = "site.control"
SERVICES = tuple(TOPICS)
PATIENCE = 60.0  # seconds that leaders may take
MILLISECONDS = {"s": 1_000, "h": 3_600_000, "d": 86_400_000}
_OURS = re.compile(rf"({'|'.join(SERVICES)}|site|supplier|connect)\..+")


@dataclass(frozen=True)
class Topic:
    """One entry of the catalogue. `retention_ms` is -1 for ever; `schemas` are stems: `order/OrderPlaced`."""

    name: str
    about: str
    key: str
    partitions: int
    replication: int
    min_in_sync: int
    cleanup: str
    mirrored: bool
    retention_ms: int
    max_record_bytes: int
    schemas: tuple[str, ...]
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]

    def config(self) -> dict[str, str]:
        """The broker's settings for this topic."""
        settings = {
            "cleanup.policy": self.cleanup,
            "min.insync.replicas": str(self.min_in_sync),
            "unclean.leader.election.enable": "false",
            "max.message.bytes": str(self.max_record_bytes),
            "message.timestamp.type": "CreateTime",
        }
        if self.cleanup == "compact":
            # Small and read whole at every start: compact early, and let the newest part be compacted too.
            return settings | {"min.cleanable.dirty.ratio": "0.1", "segment.ms": "600000"}
        settings["retention.ms"] = str(self.retention_ms)
        if self.retention_ms > 0:
            # Only closed segments are deleted, so a segment must not span the whole retention.
            settings["segment.ms"] = str(self.retention_ms // 4)
        return settings


def catalogue(brokers: int = 1) -> dict[str, Topic]:
    """Every topic of the shop, by name, in the order of `topics.yaml`.

    A cluster of three `brokers` keeps three replicas, of which two must have each record.
    """
    content = yaml.safe_load((ROOT / "topics.yaml").read_text("utf-8"))
    replicas = {"replication": brokers, "min_in_sync": brokers - 1} if brokers > 1 else {}
    return {
        name: _topic(name, {**content["defaults"], **entry, **replicas})
        for name, entry in content["topics"].items()
    }


def mirrored_topics() -> list[str]:
    """The topics that the mirror carries to the other site."""
    return [topic.name for topic in catalogue().values() if topic.mirrored]


def create_topics(bootstrap: str, topics: Mapping[str, Topic] | None = None) -> list[str]:
    """Create the missing ones of `topics` (default: the catalogue). Returns the names of the new ones.

    Waits until every partition has a leader. Raises KafkaException, or TimeoutError without leaders after a minute.
    """
    admin, topics = clients.admin(bootstrap), catalogue() if topics is None else topics
    counts = _partitions_of_new_inboxes(admin, topics)
    futures = admin.create_topics(
        [
            NewTopic(t.name, counts.get(t.name, t.partitions), t.replication, config=t.config())
            for t in topics.values()
        ]
    )
    created = [name for name, future in futures.items() if _was_created(future)]
    wait_until(
        lambda: leaderless(admin, topics),
        "every partition has a leader",
        PATIENCE,
        enough=lambda leaderless: not leaderless,
    )
    return created


def delete_topics(admin: AdminClient, names: Collection[str]) -> None:
    """Delete these topics, and wait until they are gone. Raises KafkaException, or TimeoutError after a minute."""
    for future in (admin.delete_topics([*names]) if names else {}).values():
        future.result(PATIENCE)
    wait_until(
        lambda: not {*names} & {*admin.list_topics(timeout=PATIENCE).topics},
        f"{', '.join(names)} are gone",
        PATIENCE,
    )


def drift(bootstrap: str, topics: Mapping[str, Topic] | None = None) -> list[str]:
    """Where the broker's topics differ from `topics` (default: the catalogue), in words."""
    admin, topics = clients.admin(bootstrap), catalogue() if topics is None else topics
    existing = admin.list_topics(timeout=PATIENCE).topics
    here = [topic for topic in topics.values() if topic.name in existing]
    settings = settings_in_force(admin, [topic.name for topic in here])
    lines = [f"{name} is missing" for name in topics if name not in existing]
    for topic in here:
        lines += _differences(topic, existing[topic.name], settings[topic.name])
    return lines + [
        f"{name} is not in the catalogue" for name in existing if _OURS.fullmatch(name) and name not in topics
    ]


def settings_in_force(
    admin: AdminClient, names: Iterable[str], kind: ConfigResource.Type = ConfigResource.Type.TOPIC
) -> dict[str, dict[str, str]]:
    """The settings of each topic or broker, wherever they come from. Topics must exist; brokers come one by one."""
    resources = [ConfigResource(kind, name) for name in names]
    return {
        resource.name: {name: entry.value for name, entry in future.result().items()}
        for resource, future in (admin.describe_configs(resources) if resources else {}).items()
    }


def unequal(topic: Topic, settings: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    """The settings that differ from the catalogue, in words."""
    for name in names:
        if settings.get(name) != (value := topic.config()[name]):
            yield f"{topic.name} has {name}={settings.get(name)}, the catalogue says {value}"


def ensure_site(bootstrap: str, site: str = "home") -> list[str]:
    """Write the first records of `site.control` that are absent: epoch 1, one slot per service, home active.

    In a new shop workers write to the inbox alone; one that has commands moves there when its operator says so
    (ADR 20). An active site then records the epochs that its log held before records opened them. Returns the keys that
    were written. Raises TimeoutError where the broker does not take them.
    """
    first: dict[str, Any] = {"role": SiteRole(site, "passive" if site == "away" else "active", 1)} | {
        f"layout/{service}": SlotLayout(service, 1, 1) for service in SERVICES
    }
    present = {record.key().decode() for record in read_to_end(bootstrap, CONTROL)}
    commands = [TOPICS[service].commands for service in SERVICES]
    if not present and not any(ends_by_partition(bootstrap, commands).values()):
        first["inputs"] = CommandInputs("closed", now_micros())
    absent = [key for key in first if key not in present]
    records = [NewRecord(CONTROL, key, encode(CONTROL, first[key]), 0) for key in absent]
    deliver(clients.writer(bootstrap), records, PATIENCE)
    record_epochs(bootstrap)
    return absent


def ends_by_partition(bootstrap: str, topics: Iterable[str]) -> dict[Partition, int]:
    """The high watermark of every partition of these topics."""
    return {
        (topic, number): end
        for topic in topics
        for number, end in high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic)).items()
    }


def _topic(name: str, entry: Mapping[str, Any]) -> Topic:
    own: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    kept = own.pop("retention", "forever")
    milliseconds = -1 if kept == "forever" else int(kept[:-1]) * MILLISECONDS[kept[-1]]
    return Topic(name=name, retention_ms=milliseconds, **own)


def _partitions_of_new_inboxes(admin: AdminClient, topics: Mapping[str, Topic]) -> dict[str, int]:
    """A shop of an earlier version has no inbox yet: it gets as many partitions as the commands have."""
    existing = admin.list_topics(timeout=PATIENCE).topics
    pairs = [(TOPICS[service].inbox, TOPICS[service].commands) for service in SERVICES]
    return {
        inbox: len(existing[commands].partitions)
        for inbox, commands in pairs
        if {inbox, commands} <= topics.keys() and commands in existing and existing[commands].partitions
    }


def _was_created(future: Any) -> bool:
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def leaderless(admin: AdminClient, names: Iterable[str]) -> list[str]:
    """Those of the topics that are missing, or have a partition without a leader."""
    existing = admin.list_topics(timeout=PATIENCE).topics
    return [
        name
        for name in names
        if name not in existing
        or not existing[name].partitions
        or any(partition.leader < 0 for partition in existing[name].partitions.values())
    ]


def _differences(topic: Topic, metadata: Any, settings: Mapping[str, str]) -> Iterator[str]:
    partitions = metadata.partitions.values()
    if len(partitions) != topic.partitions:
        yield f"{topic.name} has {len(partitions)} partitions, the catalogue says {topic.partitions}"
    replicas = {len(partition.replicas) for partition in partitions}
    if replicas != {topic.replication}:
        counts = " and ".join(map(str, sorted(replicas)))
        yield f"{topic.name} has {counts} replicas per partition, the catalogue says {topic.replication}"
    yield from unequal(topic, settings, topic.config())


SAFETY = ("min.insync.replicas", "unclean.leader.election.enable")
SECONDS = 30.0


class Unsafe(DaybookError):
    """The broker does not apply a setting; the text names it."""


def make_safe(bootstrap: str, topics: Mapping[str, Topic] | None = None) -> list[str]:
    """Correct the settings on which acknowledged records depend. Returns each corrected setting, in words.

    All of `topics` (default: the catalogue) must exist. Raises Unsafe, KafkaException.
    """
    admin, topics = clients.admin(bootstrap), catalogue() if topics is None else topics
    wrong = _wrong(admin, topics)
    for name in wrong:
        _correct(admin, topics[name])
    wait_until(
        lambda: _wrong(admin, {name: topics[name] for name in wrong}),
        "the broker applies the settings",
        SECONDS,
        enough=lambda left: not left,
        error=lambda late: Unsafe("; ".join(line for lines in late.last.values() for line in lines)),
    )
    return [line for lines in wrong.values() for line in lines]


def _wrong(admin: AdminClient, topics: Mapping[str, Topic]) -> dict[str, list[str]]:
    settings = settings_in_force(admin, topics)
    differences = {
        topic.name: list(unequal(topic, settings[topic.name], SAFETY)) for topic in topics.values()
    }
    return {name: lines for name, lines in differences.items() if lines}


def _correct(admin: AdminClient, topic: Topic) -> None:
    entries = [
        ConfigEntry(name, topic.config()[name], incremental_operation=AlterConfigOpType.SET)
        for name in SAFETY
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS)
