"""What retention and compaction do at one site, and what the other makes of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from infra.base.waiting import wait_until
from services.kernel.log import clients
from services.kernel.log.reader import partitions_of, read_to_end
from tests.dr.full.bare import await_still, broker, ends, mirror, mirror_place

KEPT_FOR_A_DAY, COMPACTED = "order.answers", "site.reconciliation"
COMPACTION_SECONDS = 120.0

pytestmark = pytest.mark.timeout(600)


def produce(bootstrap: str, topic: str, records: list[tuple[str, bytes | None]]) -> None:
    producer = clients.writer(bootstrap)
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def content(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    partitions = partitions_of(bootstrap, topic)
    return [
        (record.key(), record.value())
        for record in read_to_end(bootstrap, topic, dict.fromkeys(partitions, 0))
    ]


def test_what_retention_removed_unseen_is_left_out_and_the_rest_comes_once(tmp_path: Path) -> None:
    numbered: list[tuple[str, bytes | None]] = [(f"key-{number}", b"%d" % number) for number in range(300)]
    with broker(tmp_path / "home") as source, broker(tmp_path / "away") as target:
        layout = mirror_place(tmp_path / "mirror", source, target)
        produce(source, KEPT_FOR_A_DAY, numbered[:100])
        with mirror(layout) as running:
            running.copies_beyond(KEPT_FOR_A_DAY, 99)
        produce(source, KEPT_FOR_A_DAY, numbered[100:])
        admin = clients.admin(source)  # its requests end with it
        for future in admin.delete_records([TopicPartition(KEPT_FOR_A_DAY, 0, 150)]).values():
            future.result(30)
        before = ends(target, KEPT_FOR_A_DAY)
        with mirror(layout) as running:
            running.copies_beyond(KEPT_FOR_A_DAY, before + 100)
            await_still(target, KEPT_FOR_A_DAY)
        expected = [(key.encode(), value) for key, value in (*numbered[:100], *numbered[150:])]
        assert content(target, KEPT_FOR_A_DAY) == expected


def test_tombstones_cross_and_both_sites_compact_to_the_same(tmp_path: Path) -> None:
    with broker(tmp_path / "home") as source, broker(tmp_path / "away") as target:
        layout = mirror_place(tmp_path / "mirror", source, target)
        with mirror(layout) as running:
            produce(source, COMPACTED, [(f"key-{number % 20}", b"%d" % number) for number in range(200)])
            produce(source, COMPACTED, [(f"key-{number}", None) for number in range(5)])
            running.copies_beyond(COMPACTED, 204)
            # only now, so that the tombstones are what crosses, and not what they leave
            for bootstrap in (source, target):
                compact_at_once(bootstrap)
            # a closed segment is what is compacted
            for number in range(3):
                time.sleep(1.2)
                produce(source, COMPACTED, [(f"late-{number}", b"late")])
            wait_until(
                lambda: [len(content(bootstrap, COMPACTED)) for bootstrap in (source, target)],
                "both topics are compacted",
                COMPACTION_SECONDS,
                enough=lambda counts: max(counts) <= 30,
                every=1,
            )
        kept = dict(content(target, COMPACTED))
        assert kept == dict(content(source, COMPACTED))
        assert [kept.get(f"key-{number}".encode()) for number in range(5)] == [None] * 5
        assert kept[b"key-19"] == b"199"


def compact_at_once(bootstrap: str) -> None:
    """The catalogue mirrors no compacted topic: one is made so."""
    config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    entries = [
        ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, COMPACTED, incremental_configs=entries)
    admin = clients.admin(bootstrap)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
