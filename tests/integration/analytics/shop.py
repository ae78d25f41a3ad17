"""A small correct shop: its log, and read models built by the projection's code."""

import asyncio
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from contracts.inventory.events import StockIssued, StockReceived, StockReserved, StockReturned
from contracts.lock import load_lock
from contracts.order.events import (
    Charge,
    Line,
    OrderCancelled,
    OrderConfirmed,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
    RefundedLine,
)
from services.projection.engine.database import migrate, pool
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Batch
from services.projection.read_models import ORDERS, SALES_DAILY, STOCK
from tests.integration.analytics.log_writer import PARTITIONS, Topics, write, writer

DAY = 86_400_000_000
AT = 1_300_000_000_000_000


def placed(order_id: str, sku: str, quantity: int = 2) -> OrderPlaced:
    lines = (Line(sku, quantity, 2_550_000),)
    gross = quantity * 2_550_000 + 1_000_000
    return OrderPlaced(
        order_id,
        occurred_at=AT,
        lines=lines,
        charges=(Charge("POST", 1_000_000),),
        gross=gross,
        country="Norway",
        currency="GBP",
    )


def confirmed(order: OrderPlaced) -> OrderConfirmed:
    units = sum(line.quantity for line in order.lines)
    skus = tuple(line.sku for line in order.lines)
    return OrderConfirmed(
        order.order_id,
        occurred_at=AT,
        reserved=skus,
        units=units,
        gross=order.gross,
        country="Norway",
        currency="GBP",
    )


def returned(order_id: str, units: int, complete: bool) -> OrderReturned:
    refund = units * 2_550_000
    lines = (RefundedLine("A", units, refund),)
    return OrderReturned(
        order_id,
        occurred_at=AT + 2 * DAY,
        return_number=1,
        reason="",
        lines=lines,
        units=units,
        refund=refund,
        complete=complete,
        country="Norway",
        currency="GBP",
    )


def events() -> list[Any]:
    """Three orders (returned, cancelled, still open) and two SKUs."""
    first, second = placed("o-1", "A"), placed("o-2", "A")
    return [
        StockReceived("A", 100, "opening", AT),
        StockReceived("B", 5, "opening", AT),
        first,
        StockReserved("A", "o-1", 2, AT),
        confirmed(first),
        OrderShipped("o-1", AT + DAY, issue=("A",)),
        StockIssued("A", "o-1", 2, AT + DAY),
        returned("o-1", 2, complete=True),
        StockReturned("A", "o-1", 1, 2, AT + 2 * DAY),
        second,
        confirmed(second),
        OrderCancelled(
            "o-2",
            occurred_at=AT + DAY,
            reason="",
            confirmed=True,
            placed_at=AT,
            units=2,
            gross=second.gross,
            release=("A",),
            country="Norway",
            currency="GBP",
        ),
        placed("o-4", "B"),
    ]


def write_shop(kafka: str, topics: Topics) -> None:
    """Writes each event in a committed transaction, then in an aborted one. `o-3` has the older schema."""
    versions: dict[str, int] = {}
    with writer(kafka) as producer:
        for event in events():
            topic = topics.orders if "daybook.order." in event.TYPE else topics.inventory
            entity = event.order_id if topic == topics.orders else event.sku
            versions[entity] = versions.get(entity, 0) + 1
            for committed in (True, False):
                producer.begin_transaction()
                write(producer, topic, event, versions[entity])
                producer.flush()
                if committed:
                    producer.commit_transaction(30)
                else:
                    producer.abort_transaction(30)
        producer.begin_transaction()
        older = OrderPlaced(
            "o-3", occurred_at=AT, lines=(Line("C", 3, 2_000_000),), country="Norway", currency="GBP"
        )
        write(producer, topics.orders, older, 1, schema_id=load_lock().ids(OrderPlaced.TYPE)[0])
        write(producer, topics.orders, OrderRejected("o-3", AT, short=("C",), release=()), 2)
        producer.commit_transaction(30)


class Seen:
    """A record in the form that the projection reads."""

    def __init__(self, record: Any) -> None:
        self.topic, self.partition, self.offset = record.topic(), record.partition(), record.offset()
        self.key, self.value, self.headers = record.key(), record.value(), record.headers() or []


def project(kafka: str, topics: Topics, database_url: str) -> None:
    """Builds the read models up to the end of the log."""
    asyncio.run(_project(kafka, topics, database_url))


async def _project(kafka: str, topics: Topics, database_url: str) -> None:
    models = [
        *(replace(model, topics=(topics.orders,)) for model in (ORDERS, SALES_DAILY)),
        replace(STOCK, topics=(topics.inventory,)),
    ]
    async with pool(database_url, 2) as connections:
        async with connections.acquire() as connection:
            await migrate(connection, models)
        projector = Projector(connections, models)
        folders = [(topic, n) for topic in (topics.orders, topics.inventory) for n in range(PARTITIONS)]
        starts = await projector.assigned(folders, {topics.orders: PARTITIONS, topics.inventory: PARTITIONS})
        for (topic, number), start in starts.items():
            if records := read(kafka, topic, number, start):
                batch = Batch((topic, number), projector.seek, start, records)
                for model in models:
                    if topic in model.topics:
                        await projector.apply(model.name, [batch])


def read(kafka: str, topic: str, number: int, start: int) -> list[Any]:
    """The committed records of a partition from `start` to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "shop",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, start)])
    records: list[Any] = []
    while (record := consumer.poll(30)) is not None:
        if record.error() is not None:
            assert record.error().code() == KafkaError._PARTITION_EOF
            break
        records.append(Seen(record))
    consumer.close()
    return records
