"""A shop's history generated from a seed, written to the real log in transactions, some of them aborted."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from contracts.inventory.events import StockAdjusted, StockIssued, StockReceived, StockReserved
from contracts.kernel.records import EpochOpened
from contracts.order.events import (
    Charge,
    Line,
    Movement,
    MovementsRecorded,
    OrderCancelled,
    OrderConfirmed,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
    RefundedLine,
    ReservationsRecorded,
)
from infra.base.waiting import wait_until
from services.kernel.log import clients
from services.kernel.log.control import CONTROL, JOURNAL
from services.kernel.log.reader import partition_counts
from services.kernel.log.rule import OPENING_KEY
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Envelope, Metadata, now_micros, partition_of, uuid7, write_headers

TOPICS = ("order.events", "inventory.events")
DERIVED = ("order.answers", "order.state", "inventory.answers", "inventory.state")
PARTITIONS = 2
DAY = 86_400_000_000
Event = Envelope[Any]


def envelope(subject: str, version: int, body: Any, *, epoch: int = 1, at: int = 0) -> Event:
    recorded_at = at or now_micros()
    return Envelope(
        Metadata(
            type=body.TYPE,
            subject=subject,
            source="daybook/test",
            recorded_at=recorded_at,
            epoch=epoch,
            version=version,
            id=uuid7(),
            correlation_id=uuid7(),
            causation_id=uuid7(),
        ),
        body,
    )


def opening(epoch: int) -> Event:
    """The record that opens `epoch` in its partition."""
    event = envelope(OPENING_KEY, 1, EpochOpened(epoch, "home", now_micros()), epoch=epoch)
    return replace(event, metadata=event.metadata._replace(version=0))


def topic_of(event: Event) -> str:
    return TOPICS[0] if event.body.TYPE.startswith("daybook.order.") else TOPICS[1]


def order_life(order_id: str, rng: random.Random) -> list[Event]:
    """One order's events, from placed to a final state."""
    at = 1_291_000_000_000_000 + rng.randrange(60) * DAY
    lines = tuple(
        Line(f"sku-{rng.randrange(50)}", rng.randint(1, 9), rng.randint(0, 9) * 850_000 + 1)
        for _ in range(rng.randint(1, 6))
    )
    charges = (Charge("POST", 18_000_000),) if rng.random() < 0.2 else ()
    gross = sum(line.quantity * line.unit_price for line in lines) + sum(charge.amount for charge in charges)
    skus = tuple(dict.fromkeys(line.sku for line in lines))
    units = sum(line.quantity for line in lines)
    country = rng.choice(("United Kingdom", "France", "Norway"))
    market: Any = {"country": country, "currency": "GBP"}
    customer = rng.choice((None, "c-1", "c-2"))
    bodies: list[Any] = [
        OrderPlaced(
            order_id=order_id,
            occurred_at=at,
            lines=lines,
            charges=charges,
            gross=gross,
            customer_id=customer,
            **market,
        )
    ]
    if len(skus) > 1:
        bodies.append(ReservationsRecorded(order_id, at, skus[:1]))
    if rng.random() < 0.1:
        return _numbered(order_id, [*bodies, OrderRejected(order_id, at, skus[-1:], skus[:-1])])
    bodies.append(OrderConfirmed(order_id, at, skus[1:], units=units, gross=gross, **market))
    if rng.random() < 0.2:
        gone = OrderCancelled(
            order_id, at + DAY, "changed mind", True, at, units=units, gross=gross, release=skus, **market
        )
        return _numbered(order_id, [*bodies, gone])
    bodies.append(OrderShipped(order_id, at + DAY, skus, "post", "r-1"))
    bodies.append(
        MovementsRecorded(order_id, at + DAY, tuple(Movement("issue", sku, 0, True, "") for sku in skus))
    )
    if rng.random() < 0.3:
        first = lines[0]
        back = RefundedLine(first.sku, first.quantity, first.quantity * first.unit_price)
        bodies.append(
            OrderReturned(
                order_id, at + 3 * DAY, 1, "broken", lines=(back,), units=back.quantity, refund=back.refund,
                complete=len(lines) == 1, **market,
            )
        )  # fmt: skip
    return _numbered(order_id, bodies)


def stock_life(sku: str, rng: random.Random) -> list[Event]:
    at = 1_291_000_000_000_000
    bodies: list[Any] = [StockReceived(sku, 1000, "delivery", at)]
    for number in range(rng.randint(3, 30)):
        bodies.append(StockReserved(sku, f"o-{number}", 3, at))
        if rng.random() < 0.5:
            bodies.append(StockIssued(sku, f"o-{number}", 3, at))
    return _numbered(sku, [*bodies, StockAdjusted(sku, -1, "broken", at)])


def _numbered(subject: str, bodies: Iterable[Any]) -> list[Event]:
    return [envelope(subject, version, body) for version, body in enumerate(bodies, start=1)]


def history(seed: int, orders: int) -> list[Event]:
    """Events of many entities, interleaved; each entity's events are in order."""
    rng = random.Random(seed)
    lives = [iter(order_life(f"order-{seed}-{number}", rng)) for number in range(orders)]
    lives += [iter(stock_life(f"sku-{seed}-{number}", rng)) for number in range(max(1, orders // 20))]
    events: list[Event] = []
    while lives:
        life = lives[rng.randrange(min(len(lives), 40))]
        some = list(islice(life, rng.randint(1, 2)))
        events += some
        if not some:
            lives.remove(life)
    return events


def batches(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]


def fresh_topics(kafka: str) -> None:
    """Creates the two event topics and the journal anew, all empty; and the control topic, unless it is there.

    What workers derived from the former events is deleted: with it, a worker refuses a log that ends before it.
    The controller deletes and creates topics; the broker sees it a moment later. Waits for both.
    """
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 3})
    topics = {**dict.fromkeys(TOPICS, PARTITIONS), JOURNAL: 1}
    former = {*topics, *DERIVED}
    there = [name for name in partition_counts(kafka) if name in former]
    for deleted in admin.delete_topics(there).values() if there else ():
        deleted.result(30)
    _await_known(kafka, dict.fromkeys(former))
    topics |= {} if CONTROL in partition_counts(kafka) else {CONTROL: 1}
    for created in admin.create_topics([NewTopic(*topic, 1) for topic in topics.items()]).values():
        created.result(30)
    _await_known(kafka, topics)


def _await_known(kafka: str, topics: Mapping[str, int | None]) -> None:
    """Waits until the broker knows the topics with these partition counts; None: no topic of that name."""

    def counts_by_name() -> dict[str, int | None]:
        counts = partition_counts(kafka)
        return {name: counts.get(name) for name in topics}

    wait_until(
        counts_by_name, f"the broker knows {topics}", 60, enough=lambda current: current == topics, every=0.01
    )


@dataclass
class LogWriter:
    """A transactional producer that aborts some transactions: no reader may see their records."""

    kafka: str

    def __post_init__(self) -> None:
        self._producer = clients.writer(
            self.kafka,
            {
                "transactional.id": f"test-{uuid7()}",
                "retry.backoff.ms": 2,
                "retry.backoff.max.ms": 20,
                "linger.ms": 1,
            },
        )
        self._producer.init_transactions(60)

    def write(self, events: Iterable[Event], *, abort: bool = False) -> None:
        self._begin_with(events)
        if abort:
            self._producer.flush(30)
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)

    @contextmanager
    def undecided(self, events: Iterable[Event]) -> Iterator[None]:
        """Keeps the events in an open transaction during the block, then commits it."""
        self._begin_with(events)
        self._producer.flush(30)
        yield
        self._producer.commit_transaction(30)

    def _begin_with(self, events: Iterable[Event]) -> None:
        self._producer.begin_transaction()
        for event in events:
            topic = topic_of(event)
            self._send(topic, event.metadata, encode(topic, event.body))

    def open_epoch(self, epoch: int) -> None:
        """Opens the epoch in every partition, like a promoted site."""
        event = opening(epoch)
        headers: list[tuple[str, bytes | None]] = [*write_headers(event.metadata)]
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                self.write_record(topic, partition, OPENING_KEY.encode(), encode(topic, event.body), headers)

    def write_raw(self, topic: str, metadata: Metadata, value: bytes) -> None:
        self._producer.begin_transaction()
        self._send(topic, metadata, value)
        self._producer.commit_transaction(30)

    def write_record(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        """Writes a record like a foreign producer."""
        self._producer.begin_transaction()
        self._producer.produce(topic, value, key, partition, headers=headers)
        self._producer.commit_transaction(30)

    def _send(self, topic: str, metadata: Metadata, value: bytes) -> None:
        partition = partition_of(metadata.subject, PARTITIONS)
        while True:
            try:
                self._producer.produce(
                    topic, value, metadata.subject.encode(), partition, headers=write_headers(metadata)
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def write_all(self, events: Sequence[Event], size: int, *, spoil: float = 0.0, seed: int = 1) -> None:
        """Writes all events, `size` per transaction, with altered copies in aborted transactions between them."""
        rng = random.Random(seed)
        for some in batches(events, size):
            if rng.random() < spoil:
                self.write([_spoiled(event) for event in some], abort=True)
            self.write(some)


def _spoiled(event: Event) -> Event:
    return replace(event, metadata=event.metadata._replace(id=uuid7(), version=event.metadata.version + 7))
