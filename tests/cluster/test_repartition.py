"""A log moved to more partitions: every key's order is kept, also when the move dies in the middle."""

from __future__ import annotations

from collections import defaultdict

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from contracts.kernel.records import EpochOpened, OutcomeBatch
from infra.base.errors import NotDone
from infra.dr.repartition import repartition
from infra.dr.topic_copy import NotCopied, digest, require_same
from infra.log.event_log import read_log
from infra.log.topics import catalogue, create_topics, ensure_site
from services.kernel.log.control import read_control
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import OPENING_KEY, Event, Foreign, Opening
from services.kernel.record.codec import MessageGroup, OutgoingMessage, batch_records, encode, received
from services.kernel.record.envelope import Metadata, now_micros, partition_of, uuid7, write_headers

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
            number = partition_of(key, 2)
            producer.produce(LOG, b"%d" % version, key, partition=number, headers=write_headers(meta))
            written[key].append(meta.id)
        producer.poll(0)
    assert producer.flush(30) == 0
    return written


def about(key: str, version: int) -> Metadata:
    return Metadata(uuid7(), "test", key, "test", now_micros(), "c", "c", epoch=1, version=version)


def put(kafka: str, meta: Metadata, value: bytes, partition: int | None = None) -> None:
    number = partition_of(meta.subject, 2) if partition is None else partition
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(LOG, value, meta.subject, partition=number, headers=write_headers(meta))
    assert producer.flush(30) == 0


def ids_by_key(kafka: str) -> dict[str, list[str]]:
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


def test_a_batch_is_copied_message_by_message(kafka: str, log: dict[str, list[str]]) -> None:
    def messages() -> dict[str, list[str]]:
        """The ids of each key in order; every message is in the partition of its key."""
        ids = defaultdict(list)
        partitions = partitions_of(kafka, "order.inbox")
        for record in read_to_end(kafka, "order.inbox", dict.fromkeys(partitions, 0)):
            for message in received(record):
                key = (message.key or b"").decode()
                assert partition_of(key, len(partitions)) == record.partition()
                ids[key].append(message.metadata.id)
        return ids

    groups: list[MessageGroup] = []
    for key in log:
        sent = [OutgoingMessage(uuid7(), key, "", encode("order.inbox", OutcomeBatch(()))) for _ in range(3)]
        partition = partition_of(key, 2)
        groups.append(MessageGroup("order.inbox", partition, OutcomeBatch.TYPE, "c", "", "", "", "", sent))
    sender = Metadata("", "", "", "daybook/inventory", now_micros(), "", "", epoch=1, transaction="t")
    producer = Producer({"bootstrap.servers": kafka})
    for topic, value, batch_key, more in batch_records(groups, sender):
        producer.produce(topic, value, batch_key, **more)
    assert producer.flush(30) == 0
    before = messages()
    assert {len(ids) for ids in before.values()} == {3}
    moved = repartition(kafka, "order", 5, catalogue(), print)
    assert {topic.topic: topic.records for topic in moved}["order.inbox"] == 3 * KEYS
    assert messages() == before


def test_every_key_keeps_its_order(kafka: str, log: dict[str, list[str]]) -> None:
    moved = repartition(kafka, "order", 5, catalogue(), print)
    assert {topic.topic: topic.records for topic in moved}[LOG] == KEYS * EACH
    assert partitions_of(kafka, LOG) == partitions_of(kafka, "order.state") == [0, 1, 2, 3, 4]
    assert ids_by_key(kafka) == log
    assert read_control(kafka).layout("order").number == -1


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
    assert ids_by_key(kafka) == log
    assert len(partitions_of(kafka, LOG)) == 3
    assert read_control(kafka).layout("order").number == -1


def test_partitions_never_become_fewer(kafka: str, log: dict[str, list[str]]) -> None:
    with pytest.raises(NotDone, match="only become more"):
        repartition(kafka, "order", 2, catalogue(), print)
    assert ids_by_key(kafka) == log


def test_a_copy_that_is_not_the_same_is_told(kafka: str, log: dict[str, list[str]]) -> None:
    before = digest(kafka, LOG, LOG)
    assert before.records == sum(map(len, log.values()))
    put(kafka, about("order-7", EACH + 1), b"one more")
    with pytest.raises(NotCopied, match="1 keys differ \\(order-7\\)"):
        require_same(before, digest(kafka, LOG, LOG), LOG)


def test_foreign_records_are_left_out_and_epochs_are_opened_everywhere(
    kafka: str, log: dict[str, list[str]]
) -> None:
    opening = Metadata(uuid7(), EpochOpened.TYPE, OPENING_KEY, "test", now_micros(), "c", "c", epoch=2)
    for partition in (0, 1):
        put(kafka, opening, encode(LOG, EpochOpened(2, "away", now_micros())), partition)
    later = about("order-7", EACH + 1)._replace(epoch=2)
    put(kafka, later, b"of epoch 2")
    log["order-7"].append(later.id)
    for foreign in (about("order-8", EACH + 1), about("order-9", EACH + 1)._replace(epoch=2**31 - 1)):
        put(kafka, foreign, b"foreign: its epoch is not open")
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(LOG, b"foreign", None, partition=0)
    producer.produce(LOG, b"foreign", b"\xff\xfe", partition=1)
    producer.produce("order.commands", b"garbage", None, partition=0)
    producer.produce("order.answers", b"garbage", b"\xff\xfe", partition=0)
    producer.produce("order.answers", b"garbage", b"\xff\xfe", partition=1)
    assert producer.flush(30) == 0
    steps: list[str] = []
    repartition(kafka, "order", 5, catalogue(), steps.append)
    assert [step for step in steps if step.startswith("left out")] == [
        "left out 1 foreign records of order.commands",
        "left out 4 foreign records of order.events",
        "left out 1 foreign records of order.answers",
    ]
    kinds = [(record.partition(), kind) for record, kind in read_log(kafka, LOG)]
    events = [kind.metadata for _, kind in kinds if isinstance(kind, Event)]
    assert not any(isinstance(kind, Foreign) for _, kind in kinds)
    assert sorted(number for number, kind in kinds if isinstance(kind, Opening)) == [0, 1, 2, 3, 4]
    by_key = {key: [event.id for event in events if event.subject == key] for key in log}
    assert by_key == log
