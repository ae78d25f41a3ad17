"""What a log keeps: by time, by size, the newest of each key; in which segments; and when it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS, Cluster
from infra.lab.cluster.moves import DURABLE, create_placed, delete_topics
from infra.lab.cluster.rig import Rig
from infra.lab.drills.report import DrillReport
from services.kernel.log import clients
from services.kernel.log.reader import read_to_end
from services.kernel.log.transactions import produce
from services.kernel.record.envelope import format_time, now_micros

PATIENCE = 120.0
KIB = 1024
SEGMENT = 1024 * KIB  # the least that Kafka takes; its default is 1 GiB
VALUE = b"v" * KIB
RECORDS = 8_000
KEPT_BYTES = 3 * SEGMENT
KEPT_MS = 10_000
COMPACTED_KEYS, ROUNDS, DELETED = 100, 10, 40
TOMBSTONES_MS = 1_000


def retention(rig: Rig, seed: int, _folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole. The shop is not needed."""
    report, number = DrillReport("cluster retention", seed, format_time(now_micros())), f"{time.time_ns():x}"
    names = {what: f"drill.{what}-{number}" for what in ("time", "size", "compact")}
    show("retention by time")
    _by_time(rig.cluster, names["time"], report)
    show("retention by size")
    _by_size(rig.cluster, names["size"], report)
    show("compaction with tombstones")
    _compacted(rig.cluster, names["compact"], report)
    delete_topics(rig.cluster.admin, list(names.values()))
    return report


def _by_time(cluster: Cluster, topic: str, report: DrillReport) -> None:
    """The active segment is never deleted: it must end first, here after as long as records are kept."""
    _create(cluster, topic, {"retention.ms": str(KEPT_MS), "segment.ms": str(KEPT_MS)})
    _write(cluster.bootstrap, topic, {str(number): VALUE for number in range(RECORDS)})
    written = time.monotonic()
    _write_until(cluster, topic, lambda: _first(cluster.admin, topic) >= RECORDS)
    passed = time.monotonic() - written
    report.promise(
        f"retention.ms={KEPT_MS}",
        f"{RECORDS} records gone, not before their time",
        f"gone after {passed:.0f} s",
        passed * 1000 >= KEPT_MS,
    )
    report.figures["kept by time, s beyond retention.ms"] = passed - KEPT_MS / 1000


def _by_size(cluster: Cluster, topic: str, report: DrillReport) -> None:
    _create(cluster, topic, {"retention.bytes": str(KEPT_BYTES), "segment.bytes": str(SEGMENT)})
    _write(cluster.bootstrap, topic, {str(number): VALUE for number in range(RECORDS)})
    folder = cluster.nodes[BROKERS[0]].folder / "logs" / f"{topic}-0"
    largest = max(file.stat().st_size for file in folder.glob("*.log"))
    segments = len(list(folder.glob("*.log")))
    report.promise(
        f"segment.bytes={SEGMENT}",
        "no segment is larger",
        f"{segments} segments, the largest {largest:,} bytes",
        segments > 4 and largest <= SEGMENT,
    )
    _until(lambda: _size(folder) <= KEPT_BYTES + SEGMENT, "the log becomes smaller")
    left, first = _size(folder), _first(cluster.admin, topic)
    report.promise(
        f"retention.bytes={KEPT_BYTES}",
        "between this and one segment more",
        f"{left:,} bytes; {first} of {RECORDS} records gone",
        KEPT_BYTES <= left <= KEPT_BYTES + SEGMENT and first > 0,
    )


def _compacted(cluster: Cluster, topic: str, report: DrillReport) -> None:
    """Each key many times; then some are deleted; then enough else for the cleaner to reach all of that."""
    _create(
        cluster,
        topic,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT),
            "segment.ms": "2000",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(TOMBSTONES_MS),
        },
    )
    for count in range(ROUNDS):
        _write(cluster.bootstrap, topic, {f"key-{key}": b"%d" % count * KIB for key in range(COMPACTED_KEYS)})
    _write(cluster.bootstrap, topic, {f"key-{key}": None for key in range(DELETED)})
    began = time.monotonic()
    last = b"%d" % (ROUNDS - 1) * KIB
    wanted = {f"key-{key}": last for key in range(DELETED, COMPACTED_KEYS)}

    def only_the_newest() -> bool:
        found = _content(cluster.bootstrap, topic)
        return len(found) == len(wanted) and dict(found) == wanted

    _write_until(cluster, topic, only_the_newest)
    report.promise(
        f"compaction of {COMPACTED_KEYS} keys written {ROUNDS} times, {DELETED} of them deleted",
        "the newest value of each, and nothing of what was deleted",
        f"{len(wanted)} records after {time.monotonic() - began:.0f} s",
        True,
    )


def _create(cluster: Cluster, topic: str, config: Mapping[str, str]) -> None:
    soon = {"file.delete.delay.ms": "1000"}
    create_placed(cluster.admin, topic, [BROKERS], {**DURABLE, **soon, **config})


def _write(bootstrap: str, topic: str, records: Mapping[str, bytes | None]) -> None:
    producer = clients.writer(bootstrap, {"enable.idempotence": False, "linger.ms": 5})
    for key, value in records.items():
        produce(producer, topic, value, key, partition=0)
    if producer.flush(PATIENCE):
        raise NotReady(f"{topic} did not take its records")


def _write_until(cluster: Cluster, topic: str, done: Callable[[], bool]) -> None:
    """A segment ends when a record comes: nothing is looked at in a log that nobody writes to."""

    def also_write() -> bool:
        _write(cluster.bootstrap, topic, {PULSE: b"x"})
        time.sleep(1)
        return done()

    _until(also_write, f"{topic} holds only what it should")


PULSE = "pulse"


def _until(done: Callable[[], bool], what: str) -> None:
    wait_until(done, what, PATIENCE, every=0.5, error=NotReady)


def _content(bootstrap: str, topic: str) -> list[tuple[str, bytes | None]]:
    found = read_to_end(bootstrap, topic, {0: 0})
    return [(record.key().decode(), record.value()) for record in found if record.key() != PULSE.encode()]


def _first(admin: AdminClient, topic: str) -> int:
    """The offset of the first record that is left."""
    ((_, answer),) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).items()
    return int(answer.result(PATIENCE).offset)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))
