"""Writes the log of the tests: events in transactions, as a worker does, and records that no worker writes."""

import io
import struct
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import fastavro
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from analytics.offsets import stable_ends
from contracts.lock import load_lock
from infra.base.waiting import wait_until
from services.kernel.log import reader as log_reader
from services.kernel.record.envelope import Metadata, partition_of, write_headers

PARTITIONS = 2
RECORDED_AT = 1_300_000_000_000_000


@dataclass(frozen=True)
class Topics:
    """Fresh topics that stand for the catalogue's `order.events` and `inventory.events`."""

    orders: str
    inventory: str


def create_topics(kafka: str) -> Topics:
    suffix = uuid.uuid4().hex[:8]
    topics = Topics(f"order.events.{suffix}", f"inventory.events.{suffix}")
    _create(AdminClient({"bootstrap.servers": kafka}), topics.orders, topics.inventory)
    return topics


def replace_topic(kafka: str, topic: str) -> None:
    """Deletes it and makes an empty one of the same name, as the rebuild of a site does."""
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, f"{topic} is gone", 30)
    _create(admin, topic)


def _create(admin: AdminClient, *names: str) -> None:
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        created.result(30)


class Writer(Producer):  # type: ignore[misc] # untyped
    """A producer that records its topics."""

    def __init__(self, kafka: str) -> None:
        identity = f"test-{uuid.uuid4().hex}"
        # A transaction may stay open while Spark works, which takes minutes on a busy machine.
        open_ms = {"transaction.timeout.ms": 600_000}
        super().__init__({"bootstrap.servers": kafka, "transactional.id": identity, "linger.ms": 5} | open_ms)
        self.topics: set[str] = set()

    def produce(self, topic: str, *args: Any, **more: Any) -> None:
        self.topics.add(topic)
        super().produce(topic, *args, **more)


@contextmanager
def writer(kafka: str) -> Iterator[Writer]:
    """A producer with its own transactional id. The test must not leave a transaction open."""
    producer = Writer(kafka)
    producer.init_transactions(30)
    yield producer
    await_decided(kafka, producer.topics)


def await_decided(kafka: str, topics: Collection[str], seconds: float = 30) -> None:
    """Waits until committed records can be read: the broker confirms a commit before it writes the markers."""
    wait_until(
        lambda: all(
            committed == log_reader.high_watermarks(kafka, topic, list(committed))
            for topic, committed in stable_ends(kafka, topics).items()
        ),
        f"no transaction is open in {sorted(topics)}",
        seconds,
        every=0.01,
    )


def framed(schema_id: int, record: Mapping[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, load_lock().schema(schema_id), record)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


def entity_of(event: Any) -> str:
    return str(getattr(event, "order_id", None) if "daybook.order" in event.TYPE else event.sku)


def headers(type_name: str, entity: str, version: int, site: str = "") -> list[tuple[str, bytes]]:
    identity = f"{entity}-{version}{site}"
    meta = Metadata(identity, type_name, entity, "test", RECORDED_AT + version, "corr", "cause", 1, version)
    return write_headers(meta)


def write(
    producer: Producer, topic: str, event: Any, version: int, schema_id: int | None = None, site: str = ""
) -> None:
    """One event. `schema_id` picks an older schema; its missing fields are left out. The id ends with `site`."""
    entity, record = entity_of(event), asdict(event)
    value = framed(schema_id or load_lock().ids(event.TYPE)[-1], record)
    write_raw(producer, topic, entity, value, headers(event.TYPE, entity, version, site))


def write_raw(
    producer: Producer,
    topic: str,
    entity: str,
    value: bytes | None,
    its_headers: list[tuple[str, bytes]] | None,
) -> None:
    producer.produce(
        topic, key=entity, value=value, headers=its_headers, partition=partition_of(entity, PARTITIONS)
    )


def commit(producer: Producer, topic: str, stream: Iterable[tuple[Any, int]], site: str = "") -> None:
    """Events with their versions, in one committed transaction."""
    producer.begin_transaction()
    for event, version in stream:
        write(producer, topic, event, version, site=site)
    producer.commit_transaction(30)
