"""The configuration of MirrorMaker2, as a process or in a container: one direction, exactly once, same names."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from infra.base.ports import HOST
from services.kernel.log import clients
from services.kernel.log.clients import Connection

CANARY = "site.canary"
FRESH_SECONDS = 5.0
NEWLINE, ESCAPED = "\n", "\\n"
_ASK_SECONDS = 2.0
_REQUEST_BYTES = 16 * 2**20  # more than any mirrored topic takes

_CONFIGURATION = """\
clusters = {source}, {target}
{connections}
# exactly once: positions and records in one transaction at the target, only what is committed at the source
{source}->{target}.enabled = true
{source}->{target}.topics = {topics}
{target}.exactly.once.source.support = {exactly_once}
{source}.consumer.isolation.level = {isolation}
# a record beyond the producer's own megabyte would end the task, and the mirror with it
{target}.producer.max.request.size = {request_bytes}
# not taken from the settings of all: without it the worker reads every class to find its plugins
{target}.plugin.discovery = service_load
{target}->{source}.enabled = false
# without this a second worker runs for the direction that is off
{target}->{source}.emit.heartbeats.enabled = false
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
tasks.max = 1
# a worker's own REST: exactly-once needs it
dedicated.mode.enable.internal.rest = true
listeners = http://{host}:{port}
# a broker that was away is reconnected soon
reconnect.backoff.max.ms = 500
# entities have versions and consumers epochs, so no offset is translated, and the canary replaces
# heartbeats: nothing is written at the source
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
emit.offset-syncs.enabled = false
sync.group.offsets.enabled = false
refresh.groups.enabled = false
# topics.yaml makes the topics of both sites
sync.topic.configs.enabled = false
sync.topic.acls.enabled = false
refresh.topics.interval.seconds = 10
# as many replicas as the target's brokers keep by default
replication.factor = -1
config.storage.replication.factor = -1
offset.storage.replication.factor = -1
status.storage.replication.factor = -1
# the positions are read whole: few partitions, compacted early
offset.storage.partitions = 1
offset.storage.segment.bytes = 4194304
offset.storage.min.cleanable.dirty.ratio = 0.1
status.storage.partitions = 1
offset.flush.interval.ms = 1000
plugin.discovery = service_load
"""


@dataclass(frozen=True)
class MirrorPlace:
    """A mirror's folder and port, and what it connects: `source` and `target` are names, the rest addresses."""

    folder: Path
    port: int
    source: str
    target: str
    source_bootstrap: str
    target_bootstrap: str
    topics: Sequence[str]
    exactly_once: bool = True


def positions_topic(source: str) -> str:
    """The topic at the target with the mirror's position in each partition of `source`."""
    return f"mm2-offsets.{source}.internal"


def mirror_transactional_id(source: str) -> str:
    """The id under which the mirror's only task writes at the target. `init_transactions` with it fences a mirror
    that may still be alive, and ends its open transaction."""
    return f"{source}-mm2-MirrorSourceConnector-0"


def mirror_properties(mirror: MirrorPlace) -> str:
    """The configuration file. `exactly_once=False` is the negative control's."""
    connections = Connection(mirror.source_bootstrap).java(f"{mirror.source}.")
    connections |= Connection(mirror.target_bootstrap).java(f"{mirror.target}.")
    return _CONFIGURATION.format(
        source=mirror.source,
        target=mirror.target,
        connections=property_lines(connections),
        topics=", ".join(mirror.topics),
        exactly_once="enabled" if mirror.exactly_once else "disabled",
        isolation="read_committed" if mirror.exactly_once else "read_uncommitted",
        request_bytes=_REQUEST_BYTES,
        host=HOST,
        port=mirror.port,
    )


def property_lines(options: Mapping[str, str]) -> str:
    """Options as lines of a file of properties. A certificate has lines of its own; their ends are written as \\n."""
    lines = (f"{name} = {value.replace(NEWLINE, ESCAPED)}" for name, value in options.items())
    return "\n".join(lines)


def canary_age(bootstrap: str) -> float:
    """Seconds since the broker's newest canary was sent; infinite where it has none."""
    admin = clients.admin(bootstrap)
    newest = {TopicPartition(CANARY, 0): OffsetSpec.max_timestamp()}
    try:
        offsets = admin.list_offsets(newest, request_timeout=_ASK_SECONDS)
        sent = max(future.result().timestamp for future in offsets.values())
    except KafkaException:
        return float("inf")
    return time.time() - sent / 1000 if sent > 0 else float("inf")
