"""The topics: created from `contracts/topics.yaml`, and compared with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from contracts.kernel.records import SiteRole, SlotLayout
from contracts.lock import ROOT
from contracts.topics import TOPICS
from infra.base.waiting import wait_until
from infra.log.epochs import record_epochs
from services.kernel.log import clients
from services.kernel.log.reader import read_to_end
from services.kernel.record.codec import encode

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


def catalogue() -> dict[str, Topic]:
    """Every topic of the shop, by name, in the order of `topics.yaml`."""
    content = yaml.safe_load((ROOT / "topics.yaml").read_text("utf-8"))
    return {name: _topic(name, {**content["defaults"], **entry}) for name, entry in content["topics"].items()}


def mirrored_topics() -> list[str]:
    """The topics that the mirror carries to the other site."""
    return [topic.name for topic in catalogue().values() if topic.mirrored]


def create_topics(bootstrap: str, wanted: Mapping[str, Topic] | None = None) -> list[str]:
    """Create what is missing of `wanted` (default: the catalogue); answers the names of the new ones.

    Waits until every partition has a leader. Raises KafkaException, or TimeoutError where leaders do not come
    within a minute.
    """
    admin, wanted = _admin(bootstrap), catalogue() if wanted is None else wanted
    counts = _partitions_of_new_inboxes(admin, wanted)
    asked = admin.create_topics(
        [
            NewTopic(t.name, counts.get(t.name, t.partitions), t.replication, config=t.config())
            for t in wanted.values()
        ]
    )
    created = [name for name, future in asked.items() if _was_created(future)]
    wait_until(
        lambda: _leaderless(admin, wanted),
        "every partition has a leader",
        PATIENCE,
        enough=lambda leaderless: not leaderless,
    )
    return created


def drift(bootstrap: str, wanted: Mapping[str, Topic] | None = None) -> list[str]:
    """Where the broker's topics differ from `wanted` (default: the catalogue), in words."""
    admin, wanted = _admin(bootstrap), catalogue() if wanted is None else wanted
    found = admin.list_topics(timeout=PATIENCE).topics
    here = [topic for topic in wanted.values() if topic.name in found]
    settings = settings_in_force(admin, here)
    lines = [f"{name} is missing" for name in wanted if name not in found]
    for topic in here:
        lines += _differences(topic, found[topic.name], settings[topic.name])
    return lines + [
        f"{name} is not in the catalogue" for name in found if _OURS.fullmatch(name) and name not in wanted
    ]


def settings_in_force(admin: AdminClient, topics: Iterable[Topic]) -> dict[str, dict[str, str]]:
    """By topic; also what the broker's own settings say for it. The topics must exist."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic.name) for topic in topics]
    return {
        resource.name: {name: entry.value for name, entry in future.result().items()}
        for resource, future in (admin.describe_configs(resources) if resources else {}).items()
    }


def unequal(topic: Topic, settings: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    """Where these settings of a topic are not those of the catalogue, in words."""
    for name in names:
        if settings.get(name) != (value := topic.config()[name]):
            yield f"{topic.name} has {name}={settings.get(name)}, the catalogue says {value}"


def ensure_site(bootstrap: str, site: str = "home") -> list[str]:
    """Write the first records of `site.control` that are absent: epoch 1, one slot per service, home active.

    An active site then records the epochs that its log held before records opened them. Returns the keys that
    were written. Raises TimeoutError where the broker does not take them.
    """
    first = {"role": SiteRole(site, "passive" if site == "away" else "active", 1)} | {
        f"layout/{service}": SlotLayout(service, 1, 1) for service in SERVICES
    }
    held = {record.key().decode() for record in read_to_end(bootstrap, CONTROL, {0: 0})}
    absent = [key for key in first if key not in held]
    producer = clients.writer(bootstrap)
    for key in absent:
        producer.produce(CONTROL, encode(CONTROL, first[key]), key, partition=0)
    if producer.flush(PATIENCE):
        raise TimeoutError(f"{CONTROL} did not take its first records: is the broker up?")
    record_epochs(bootstrap)
    return absent


def _topic(name: str, entry: Mapping[str, Any]) -> Topic:
    return Topic(
        name=name,
        about=entry["about"],
        key=entry["key"],
        partitions=entry["partitions"],
        replication=entry["replication"],
        min_in_sync=entry["min_in_sync"],
        cleanup=entry["cleanup"],
        mirrored=entry["mirrored"],
        retention_ms=_milliseconds(entry.get("retention", "forever")),
        max_record_bytes=entry["max_record_bytes"],
        schemas=tuple(entry["schemas"]),
        written_by=tuple(entry["written_by"]),
        read_by=tuple(entry["read_by"]),
    )


def _milliseconds(text: str) -> int:
    return -1 if text == "forever" else int(text[:-1]) * MILLISECONDS[text[-1]]


def _admin(bootstrap: str) -> AdminClient:
    return clients.admin(bootstrap)


def _partitions_of_new_inboxes(admin: AdminClient, wanted: Mapping[str, Topic]) -> dict[str, int]:
    """A shop of an earlier version has commands, perhaps repartitioned, and no inbox beside them yet."""
    there = admin.list_topics(timeout=PATIENCE).topics
    pairs = [(TOPICS[service].inbox, TOPICS[service].commands) for service in SERVICES]
    return {
        inbox: len(there[commands].partitions)
        for inbox, commands in pairs
        if {inbox, commands} <= wanted.keys() and commands in there and there[commands].partitions
    }


def _was_created(future: Any) -> bool:
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _leaderless(admin: AdminClient, wanted: Mapping[str, Topic]) -> list[str]:
    found = admin.list_topics(timeout=PATIENCE).topics
    return [
        name
        for name in wanted
        if name not in found
        or not found[name].partitions
        or any(partition.leader < 0 for partition in found[name].partitions.values())
    ]


def _differences(topic: Topic, found: Any, settings: Mapping[str, str]) -> Iterator[str]:
    partitions = found.partitions.values()
    if len(partitions) != topic.partitions:
        yield f"{topic.name} has {len(partitions)} partitions, the catalogue says {topic.partitions}"
    replicas = {len(partition.replicas) for partition in partitions}
    if replicas != {topic.replication}:
        counts = " and ".join(map(str, sorted(replicas)))
        yield f"{topic.name} has {counts} replicas per partition, the catalogue says {topic.replication}"
    yield from unequal(topic, settings, topic.config())
