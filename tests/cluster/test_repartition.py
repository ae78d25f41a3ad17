"""A log moved to more partitions: every key's order is kept, also when the move dies in the middle."""

from __future__ import annotations

from collections import defaultdict

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from infra.repartition.copying import NotCopied, digest, require_same
from infra.repartition.generation import NotPossible, repartition
from infra.topics import catalogue, create_topics, ensure_site
from services.kernel.control import read_control
from services.kernel.envelope import Metadata, now_micros, partition_of, uuid7, write_headers
from services.kernel.log_reader import partitions_of, read_to_end

KEYS, EACH = 40, 25
LOG = "order.events"


class Died(Exception):
    pass


def write(kafka: str) -> dict[str, list[str]]:
    """Events of many keys, in turn; the ids of each key in order."""
    producer, written = Producer({"bootstrap.servers": kafka}), defaultdict(list)
    for version in range(1, EACH + 1):
        for number in range(KEYS):
            key, at = f"order-{number}", now_micros()
            meta = Metadata(uuid7(), "test", key, "test", at, "c", "c", epoch=1, version=version)
            place = partition_of(key, 2)
            producer.produce(LOG, b"%d" % version, key, partition=place, headers=write_headers(meta))
            written[key].append(meta.id)
        producer.poll(0)
    assert producer.flush(30) == 0
    return written


def found(kafka: str) -> dict[str, list[str]]:
    ids = defaultdict(list)
    for record in read_to_end(kafka, LOG, dict.fromkeys(partitions_of(kafka, LOG), 0)):
        ids[record.key().decode()].append(dict(record.headers())["ce_id"].decode())
    return ids


@pytest.fixture
def log(kafka: str) -> dict[str, list[str]]:
    admin = AdminClient({"bootstrap.servers": kafka})
    present = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    for future in (admin.delete_topics(present) if present else {}).values():
        future.result(30)
    create_topics(kafka)
    ensure_site(kafka)
    return write(kafka)


def test_every_key_keeps_its_order(kafka: str, log: dict[str, list[str]]) -> None:
    moved = repartition(kafka, "order", 5, catalogue(), print)
    assert [(each.topic, each.records) for each in moved][1] == (LOG, KEYS * EACH)
    assert partitions_of(kafka, LOG) == partitions_of(kafka, "order.state") == [0, 1, 2, 3, 4]
    assert found(kafka) == log
    assert read_control(kafka).layout("order").number == 1


def test_a_move_that_died_goes_on_where_it_stopped(kafka: str, log: dict[str, list[str]]) -> None:
    def die(step: str) -> None:
        if step == f"switching {LOG}":
            raise Died

    with pytest.raises(Died):
        repartition(kafka, "order", 3, catalogue(), die)
    assert read_control(kafka).layout("order").number == -1, "no worker may come back in between"
    # as if it had been killed between the deletion and the new topic
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([LOG])[LOG].result(30)
    repartition(kafka, "order", 3, catalogue(), print)
    assert found(kafka) == log
    assert len(partitions_of(kafka, LOG)) == 3
    assert read_control(kafka).layout("order").number == 1


def test_partitions_never_become_fewer(kafka: str, log: dict[str, list[str]]) -> None:
    with pytest.raises(NotPossible, match="only become more"):
        repartition(kafka, "order", 2, catalogue(), print)
    assert found(kafka) == log


def test_a_copy_that_is_not_the_same_is_told(kafka: str, log: dict[str, list[str]]) -> None:
    before = digest(kafka, LOG)
    assert before.records == sum(map(len, log.values()))
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(LOG, b"one more", "order-7", partition=partition_of("order-7", 2))
    producer.flush(30)
    with pytest.raises(NotCopied, match="1 keys differ \\(order-7\\)"):
        require_same(before, digest(kafka, LOG), LOG)
