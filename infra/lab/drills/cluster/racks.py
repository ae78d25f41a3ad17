"""A reader in a rack is served by the replica in that rack, and by the leader when that replica is gone."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from infra.base.errors import NotReady
from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS
from infra.lab.cluster.moves import create_placed, delete_topics, elect_preferred
from infra.lab.cluster.rig import Rig
from infra.lab.drills.cluster.records import Numbered
from infra.lab.drills.report import DrillReport
from services.kernel.log import clients
from services.kernel.record.envelope import format_time, now_micros

RECORDS = 20_000  # of a kilobyte
READ_SECONDS = 60.0
# Asked for so little at a time that the reader fetches hundreds of times.
FETCH_BYTES = 65_536
MOST = 0.8


def racks(rig: Rig, seed: int, _folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole. The shop is not needed."""
    report, cluster = DrillReport("cluster racks", seed, format_time(now_micros())), rig.cluster
    leader, neighbour, _ = BROKERS
    topic = f"drill.racks-{time.time_ns():x}"
    create_placed(cluster.admin, topic, [BROKERS])
    written = Numbered(cluster.bootstrap, topic, "all", padding=1000)
    written.write(RECORDS)
    written.flush()
    show("reading without a rack, then in one")
    nowhere = _read(cluster.bootstrap, topic, "")
    inside = _read(cluster.bootstrap, topic, f"rack-{neighbour}")
    _promise(report, "a reader without a rack", leader, nowhere)
    _promise(report, f"a reader in the rack of broker {neighbour}", neighbour, inside)
    show(f"broker {neighbour} is killed")
    cluster.kill(neighbour)
    began = time.monotonic()
    after = _read(cluster.bootstrap, topic, f"rack-{neighbour}")
    report.figures["all read again after the neighbour's kill, s"] = time.monotonic() - began
    said = ", ".join(f"broker {broker}: {count}" for broker, count in sorted(after.items()))
    report.promise("the same reader, its neighbour killed", "served by others", said, after[neighbour] == 0)
    cluster.launch(neighbour)
    cluster.await_in_sync()
    elect_preferred(cluster.bootstrap)
    delete_topics(cluster.admin, [topic])
    return report


def _promise(report: DrillReport, who: str, broker: int, fetches: Counter[int]) -> None:
    share = fetches[broker] / fetches.total()
    said = ", ".join(f"broker {each}: {count}" for each, count in sorted(fetches.items()))
    report.promise(f"{who}: fetches", f"most from broker {broker}", said, share >= MOST)


def _read(bootstrap: str, topic: str, rack: str) -> Counter[int]:
    """Read everything; how many fetches each broker answered, as the client counts them. Raises NotReady."""
    fetches: Counter[int] = Counter()

    def count(statistics: str) -> None:
        for broker in msgspec.json.decode(statistics)["brokers"].values():
            if broker["nodeid"] >= 0:
                fetches[broker["nodeid"]] = broker["req"].get("Fetch", 0)

    consumer = clients.reader(
        bootstrap,
        {
            "client.rack": rack,
            "max.partition.fetch.bytes": FETCH_BYTES,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 128,
            "statistics.interval.ms": 100,
            "stats_cb": count,
            "log_level": 0,
        },
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        _to_the_end(consumer)
        consumer.poll(0.5)  # the last statistics
    finally:
        consumer.close()
    return fetches


def _to_the_end(consumer: Consumer) -> None:
    read, until = 0, time.monotonic() + READ_SECONDS
    while read < RECORDS:
        if time.monotonic() > until:
            raise NotReady(f"{read} of {RECORDS} records were read in {READ_SECONDS:.0f} s")
        record = consumer.poll(0.2)
        if record is None:
            continue
        error = record.error()
        if error is None:
            read += 1
        elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
            raise KafkaException(error)
