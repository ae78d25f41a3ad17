"""P2: the decide loop with commands ready in the topic: no HTTP; snapshots every 2 s."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from services.kernel.log import clients
from tests.bench import bulk
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, interleave
from tests.bench.peers.producer_performance import produce
from tests.bench.rig import Rig
from tests.bench.subjects.work_process import WorkProcess

SNAPSHOT_SECONDS = 2.0
OURS, PLAIN, RECORDS = "daybook", "plain loop", "plain loop, same records"
PERFORMANCE = "ProducerPerformance"


@dataclass(frozen=True)
class Kind:
    """One kind of command: `rate` is the goal, and the number of commands in a window of one second."""

    name: str
    what: str
    service: str
    rate: int


KINDS = (
    Kind("small", "orders of 2 lines", "order", 20_000),
    Kind("big", "orders of 24 lines", "order", 8_000),
    Kind("reservation", "reservations", "inventory", 25_000),
)


def run(effort: Effort, say: Say) -> list[Measured]:
    return [_measure(kind, effort, say) for kind in KINDS]


def _measure(kind: Kind, effort: Effort, say: Say) -> Measured:
    count, numbers = int(kind.rate * effort.seconds * 0.6), itertools.count()
    say(f"{kind.what}, {count:,} a window")
    with Rig(postgres=False) as rig:
        admin = clients.admin(rig.kafka)
        for future in admin.create_topics(
            [NewTopic(f"bench.{name}", 2, 1) for name in ("events", "asks", "outcomes", "performance")]
        ).values():
            future.result(60)
        opening = 0
        if kind.service == "inventory":
            opening = bulk.put_commands(rig.kafka, kind.service, bulk.receipts())
        ours = ("tests.bench.subjects.decide_loop", kind.service, rig.kafka, str(SNAPSHOT_SECONDS))
        plain = ("tests.bench.peers.plain_loop", rig.kafka, kind.service)
        with (
            WorkProcess(OURS, rig.folder / "ours.log", *ours) as subject,
            WorkProcess(PLAIN, rig.folder / "plain.log", *plain, "plain") as peer,
            WorkProcess(RECORDS, rig.folder / "records.log", *plain, "records") as same,
        ):
            if opening:
                subject.work(opening)

            def prepare() -> None:
                some = bulk.commands(kind.name, count, next(numbers) * count)
                bulk.put_commands(rig.kafka, kind.service, some)

            prepare()
            subject.work(count)
            peer.work(count)
            same.work(count)
            size = record_bytes(rig.kafka, f"{kind.service}.events")
            contenders = (
                Contender(OURS, lambda: subject.work(count)),
                Contender(PLAIN, lambda: peer.work(count)),
                Contender(RECORDS, lambda: same.work(count)),
                Contender(PERFORMANCE, lambda: produce(rig.kafka, "bench.performance", 4 * count, size)),
            )
            windows = interleave(contenders, effort.windows, say, warm=False, before=prepare)
    row = Measured(kind.what, "commands/s", windows)
    row.reach(f"≥{kind.rate:,}/s", row.spread().median, kind.rate)
    row.reach("≥60 % of the plain loop", row.ratio(PLAIN).median, 0.6)
    own_cpu, plain_cpu = row.seen("CPU µs").median, row.seen("CPU µs", PLAIN).median
    row.notes.append(f"{row.ratio(RECORDS).median:.2f} of the plain loop that writes the same records")
    row.notes.append(
        f"by CPU time, which a busy machine moves less: {plain_cpu / own_cpu:.2f} of the plain loop"
    )
    row.notes.append(f"an event is {size} bytes with key and headers; snapshots every {SNAPSHOT_SECONDS} s")
    return row


def record_bytes(bootstrap: str, topic: str) -> int:
    """The mean size of a topic's last records: key, value and headers."""
    consumer = clients.follower(bootstrap)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
        consumer.assign([TopicPartition(topic, 0, max(0, end - 1000))])
        records = consumer.consume(500, 10.0)
    finally:
        consumer.close()
    if not records:
        raise Unmeasurable(f"{topic} is empty")
    total = 0
    for record in records:
        headers = sum(len(name) + len(value) for name, value in record.headers() or ())
        total += len(record.key() or b"") + len(record.value() or b"") + headers
    return total // len(records)
