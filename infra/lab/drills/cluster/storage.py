"""The limits of a log: retention by time and size, compaction, the largest order, and a quota on a client."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import msgspec

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.lab.cluster.administration import CONFIGS, DURABLE, run_tool
from infra.lab.cluster.cluster import BROKERS, Cluster, timed
from infra.lab.cluster.rig import SITE, ClusterRig
from infra.lab.drills.cluster.promises import brokers, new_topic, with_shop
from infra.lab.drills.cluster.records import Numbered
from infra.lab.drills.drill import Course, Drill
from infra.lab.load.clients import Api
from infra.log.topics import catalogue
from services.edge.problems import MAX_BODY_BYTES
from services.edge.requests import MAX_LINES
from services.kernel.log import clients
from services.kernel.log.reader import offsets_at, read_to_end
from services.kernel.log.transactions import produce

PATIENCE = 120.0
KIB = 1024
SEGMENT = 1024 * KIB  # the least that Kafka accepts; its default is 1 GiB
VALUE = b"v" * KIB
RECORDS = 8_000
KEPT_BYTES = 3 * SEGMENT
KEPT_MS = 10_000
COMPACTED_KEYS, ROUNDS, DELETED = 100, 10, 40
TOMBSTONES_MS = 1_000
PULSE = "pulse"
LONGEST_SKU, LONGEST_CODE = "L" * 64, "postage-" * 8
RESPONSE_SECONDS = 60.0
# A broker averages over 11 s: what fits into these seconds passes at once.
QUOTA_BYTES = 50_000  # per second, of one client
QUOTA_RECORDS, QUOTA_PADDING = 1_000, 1_000
CLIENT = "drill-greedy"


def _retention_by_time(course: Course[ClusterRig], _: None) -> None:
    """The active segment is never deleted: it must end first, here after as long as records are kept."""
    course.show("retention by time")
    cluster, report = course.rig.cluster, course.report
    topic = _create(cluster, "time", {"retention.ms": str(KEPT_MS), "segment.ms": str(KEPT_MS)})
    _write(cluster.bootstrap, topic, {str(number): VALUE for number in range(RECORDS)})
    passed = timed(lambda: _write_until(cluster, topic, lambda: _first_offset(cluster, topic) >= RECORDS))
    report.promise(
        f"retention.ms={KEPT_MS}",
        f"{RECORDS} records gone, not before their time",
        f"gone after {passed:.0f} s",
        passed * 1000 >= KEPT_MS,
    )
    report.figures["kept by time, s beyond retention.ms"] = passed - KEPT_MS / 1000


def _retention_by_size(course: Course[ClusterRig], _: None) -> None:
    course.show("retention by size")
    cluster, report = course.rig.cluster, course.report
    topic = _create(cluster, "size", {"retention.bytes": str(KEPT_BYTES), "segment.bytes": str(SEGMENT)})
    _write(cluster.bootstrap, topic, {str(number): VALUE for number in range(RECORDS)})
    folder = cluster.nodes[BROKERS[0]].folder / "logs" / f"{topic}-0"
    sizes = [file.stat().st_size for file in folder.glob("*.log")]
    report.promise(
        f"segment.bytes={SEGMENT}",
        "no segment is larger",
        f"{len(sizes)} segments, the largest {max(sizes):,} bytes",
        len(sizes) > 4 and max(sizes) <= SEGMENT,
    )
    _until(lambda: _size(folder) <= KEPT_BYTES + SEGMENT, "the log becomes smaller")
    left, first = _size(folder), _first_offset(cluster, topic)
    report.promise(
        f"retention.bytes={KEPT_BYTES}",
        "between this and one segment more",
        f"{left:,} bytes; {first} of {RECORDS} records gone",
        KEPT_BYTES <= left <= KEPT_BYTES + SEGMENT and first > 0,
    )


def _compaction(course: Course[ClusterRig], _: None) -> None:
    """Each key is written many times; some are deleted; then more is written, so that the cleaner reaches all of it."""
    course.show("compaction with tombstones")
    cluster = course.rig.cluster
    topic = _create(
        cluster,
        "compact",
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT),
            "segment.ms": "2000",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(TOMBSTONES_MS),
        },
    )
    for number in range(ROUNDS):
        value = b"%d" % number * KIB
        _write(cluster.bootstrap, topic, {f"key-{key}": value for key in range(COMPACTED_KEYS)})
    _write(cluster.bootstrap, topic, {f"key-{key}": None for key in range(DELETED)})
    expected = {f"key-{key}": value for key in range(DELETED, COMPACTED_KEYS)}

    def only_the_newest() -> bool:
        records = [
            (record.key().decode(), record.value())
            for record in read_to_end(cluster.bootstrap, topic, {0: 0})
            if record.key() != PULSE.encode()
        ]
        return len(records) == len(expected) and dict(records) == expected

    seconds = timed(lambda: _write_until(cluster, topic, only_the_newest))
    course.report.promise(
        f"compaction of {COMPACTED_KEYS} keys written {ROUNDS} times, {DELETED} of them deleted",
        "the newest value of each, and nothing of what was deleted",
        f"{len(expected)} records after {seconds:.0f} s",
        True,
    )


def _create(cluster: Cluster, name: str, config: Mapping[str, str]) -> str:
    return new_topic(cluster, name, {**DURABLE, "file.delete.delay.ms": "1000", **config})


def _write(bootstrap: str, topic: str, records: Mapping[str, bytes | None]) -> None:
    producer = clients.writer(bootstrap, {"enable.idempotence": False, "linger.ms": 5})
    for key, value in records.items():
        produce(producer, topic, value, key, partition=0)
    if producer.flush(PATIENCE):
        raise NotReady(f"{topic} did not accept its records")


def _write_until(cluster: Cluster, topic: str, done: Callable[[], bool]) -> None:
    """A segment ends only when another record is written: without writes, nothing is cleaned."""

    def also_write() -> bool:
        _write(cluster.bootstrap, topic, {PULSE: b"x"})
        time.sleep(1)
        return done()

    _until(also_write, f"{topic} contains only what it should")


def _until(done: Callable[[], bool], what: str) -> None:
    wait_until(done, what, PATIENCE, every=0.5, error=NotReady)


def _first_offset(cluster: Cluster, topic: str) -> int:
    """The offset of the first record that is left."""
    return offsets_at(cluster.bootstrap, topic, 0)[0]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))


def _large_orders(course: Course[ClusterRig], _: None) -> None:
    course.show("orders of a mebibyte, and more")
    report, rig, limit = course.report, course.rig, MAX_BODY_BYTES
    name = f"large-{rig.run_id}"
    fits = _place(rig, name, limit)
    report.promise(f"an order whose body is {limit:,} bytes", "201", _status(fits), fits.status_code == 201)
    beyond = _place(rig, f"{name}-more", limit + 1)
    refused = beyond.status_code == 413
    report.promise(f"one whose body is {limit + 1:,} bytes", "413 at the edge", _status(beyond), refused)
    topic, bootstrap = "order.events", rig.cluster.bootstrap
    own = (record for record in read_to_end(bootstrap, topic) if record.key() == name.encode())
    largest = max((len(record.value()) for record in own), default=0)
    report.promise("its largest event in the log", "there", f"{largest:,} bytes", largest > 0)
    rig.await_rest()
    urls = rig.urls[SITE]
    row = httpx.get(
        f"{urls[Api.QUERY]}/orders/{name}", auth=urls.caller, timeout=RESPONSE_SECONDS, trust_env=False
    )
    report.promise("its row in the read model", "200", _status(row), row.status_code == 200)


def _place(rig: ClusterRig, order_id: str, size: int) -> httpx.Response:
    """Place an order whose body has exactly so many bytes: the most lines and charges, with the longest names, and then
    spaces, which JSON allows."""
    lines = [{"sku": LONGEST_SKU, "quantity": 1, "unit_price": "1.00"}] * MAX_LINES
    charges = [{"code": LONGEST_CODE, "amount": "0.01"}] * MAX_LINES
    body = {"order_id": order_id, "country": "France", "currency": "EUR", "lines": lines, "charges": charges}
    urls = rig.urls[SITE]
    return httpx.post(
        f"{urls[Api.ORDER]}/orders",
        auth=urls.caller,
        content=msgspec.json.encode(body).ljust(size),
        headers={"Idempotency-Key": order_id, "Content-Type": "application/json"},
        timeout=RESPONSE_SECONDS,
        trust_env=False,
    )


def _status(response: httpx.Response) -> str:
    return f"{response.status_code} {response.json().get('code', '')}".strip()


def _large_records(course: Course[ClusterRig], _: None) -> None:
    course.show("a record beyond the topic's bound")
    topic = "order.commands"
    bound = catalogue()[topic].max_record_bytes
    options = {"enable.idempotence": False, "message.max.bytes": 2 * bound}
    record = Numbered(course.rig.cluster.bootstrap, topic, "all", padding=bound, **options)
    record.write(1)
    record.flush()
    errors = list(record.refused)
    what, kept = f"a record beyond max.message.bytes={bound}", errors == ["MSG_SIZE_TOO_LARGE"]
    course.report.promise(what, "refused by the broker", ", ".join(errors) or "not refused", kept)


def _quota(course: Course[ClusterRig], _: None) -> None:
    course.show("a quota")
    report, cluster = course.report, course.rig.cluster
    topic = new_topic(cluster, "quota")
    alter = (cluster.bootstrap, "--alter")
    client = ("--entity-type", "clients", "--entity-name", CLIENT)
    free = _rate(cluster.bootstrap, topic)
    run_tool(CONFIGS, *alter, "--add-config", f"producer_byte_rate={QUOTA_BYTES}", *client)
    time.sleep(2)
    bound = _rate(cluster.bootstrap, topic)
    run_tool(CONFIGS, *alter, "--delete-config", "producer_byte_rate", *client)
    report.figures["bytes a second without a quota"] = free
    report.figures["bytes a second with one"] = bound
    measured, kept = f"{free:,.0f}, then {bound:,.0f} bytes/s", bound < min(2 * QUOTA_BYTES, free)
    report.promise(f"producer_byte_rate={QUOTA_BYTES}", "slowed down, not refused", measured, kept)


def _rate(bootstrap: str, topic: str) -> float:
    records = Numbered(bootstrap, topic, "all", QUOTA_PADDING, **{"client.id": CLIENT, "batch.size": 16_384})
    began = time.monotonic()
    records.write(QUOTA_RECORDS)
    records.flush()
    return len(records.acknowledged) * QUOTA_PADDING / (time.monotonic() - began)


RETENTION = Drill(
    "cluster retention",
    "Measure retention by time and size, segments, and compaction with tombstones: what is kept, and how long.",
    rig=brokers,
    promises=(_retention_by_time, _retention_by_size, _compaction),
)
SIZES = Drill(
    "cluster sizes",
    "Send an order of 1 MiB (accepted) and a larger one (refused at the edge); slow a client down by a quota.",
    rig=with_shop,
    promises=(_large_orders, _large_records, _quota),
)
