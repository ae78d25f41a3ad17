"""P3: events a second that one projection process applies, durably, at 1, 10 and 100 events per transaction.

The log is written beforehand; each window is a new process on an empty database that goes through all of it.
"""

from __future__ import annotations

import itertools

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from services.kernel.log.clients import Connection
from services.projection.read_models import READ_MODELS
from tests.bench import bulk
from tests.bench.databases import drain_seconds, fresh_database
from tests.bench.harness import Contender, Effort, Measured, Say, Window, interleave
from tests.bench.rig import Cores, Rig

OURS, PLAIN, SINGLE = "daybook (Faust, runs)", "plain aiokafka", "Faust, one at a time"
SOURCES = {OURS: "faust", PLAIN: "plain", SINGLE: "single"}
ORDER_MODELS = tuple(model.name for model in READ_MODELS if "order.events" in model.topics)
PER_TRANSACTION = (1, 10, 100)
EVENTS_OF_ONE = 6_000  # the broker takes some hundred transactions a second at best

_numbers = itertools.count()


def run(effort: Effort, say: Say) -> list[Measured]:
    rows: list[Measured] = []
    for size in PER_TRANSACTION:
        with Rig() as rig:
            event_count = EVENTS_OF_ONE if size == 1 else int(10_000 * effort.seconds)
            events = bulk.interleaved(bulk.lives(event_count // 4))
            count = bulk.put_events(rig.kafka, events, size)
            say(f"{count:,} events in the log, {size} per transaction")
            ends = last_records(rig.kafka, "order.events")
            if size == 10:
                rows.append(_row(rig, ("orders",), size, count, ends, effort, say))
            rows.append(_row(rig, ORDER_MODELS, size, count, ends, effort, say))
    return rows


def _row(
    rig: Rig,
    models: tuple[str, ...],
    size: int,
    count: int,
    ends: dict[tuple[str, int], int],
    effort: Effort,
    say: Say,
) -> Measured:
    contenders = [
        Contender(name, lambda source=source: measure(rig, source, models, count, ends))  # type: ignore[misc]
        for name, source in SOURCES.items()
    ]
    windows = interleave(contenders, effort.windows, say, warm=False)
    shown = models[0] if len(models) == 1 else f"{len(models)} read models"
    row = Measured(f"{size} per transaction, {shown}", "events/s", windows)
    if size == 10:
        row.reach("≥15,000/s", row.spread().median, 15_000)
        row.reach("≥80 % of the control", row.ratio(PLAIN).median, 0.8)
        row.reach("≥2× one at a time", row.ratio(SINGLE).median, 2.0)
    return row


def measure(
    rig: Rig, source: str, models: tuple[str, ...], count: int, ends: dict[tuple[str, int], int]
) -> Window:
    """One process on one empty database, from its first commit to its last."""
    database, name = fresh_database(rig.database_url), f"projection-{next(_numbers)}"
    part = rig.start(
        name,
        "tests.bench.subjects.projection",
        *(source, ",".join(models)),
        database_url=database,
        projection_group=name,
    )
    cores = Cores(rig)
    try:
        seconds, share = drain_seconds(database, ends, len(models))
        busy = cores.taken()
    finally:
        part.kill()
        del rig.parts[name]
    return Window(
        count * share / seconds, {"cpu postgres": busy["cpu postgres"], "cpu projection": busy[f"cpu {name}"]}
    )


def last_records(bootstrap: str, topic: str) -> dict[tuple[str, int], int]:
    """The position after the last record of each partition, without markers, as a read model stores it."""
    consumer = Consumer(
        Connection(bootstrap).librdkafka()
        | {
            "group.id": "bench-ends",
            "enable.partition.eof": True,
        }
    )
    positions: dict[tuple[str, int], int] = {}
    try:
        for partition in (0, 1):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
            consumer.assign([TopicPartition(topic, partition, max(0, end - 2000))])
            while True:
                (record,) = consumer.consume(1, 30) or (None,)
                if record is None or record.error() is not None:
                    if record is not None and record.error().code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(record.error())
                    break
                positions[topic, partition] = record.offset() + 1
    finally:
        consumer.close()
    return positions
