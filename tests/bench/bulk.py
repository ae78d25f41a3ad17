"""Generated commands and events, written to the log before the clock starts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import Producer

from contracts.inventory.commands import ReceiveStock, ReserveStock
from contracts.inventory.events import StockIssued, StockReserved
from contracts.order.commands import PlaceOrder
from contracts.order.events import (
    Charge,
    Line,
    Movement,
    MovementsRecorded,
    OrderConfirmed,
    OrderPlaced,
    OrderShipped,
)
from services.kernel.log.clients import Connection
from services.kernel.record.codec import encode, topic_of
from services.kernel.record.envelope import Envelope, Metadata, ReplyAddress, now_micros, uuid7, write_headers

SKUS = 500
AT = 1_291_000_000_000_000
REQUEST_HASH = "d41d8cd98f00b204e9800998ecf8427e"
SHOP: dict[str, Any] = {"country": "United Kingdom", "currency": "GBP"}


def commands(kind: str, count: int, first: int) -> Iterator[tuple[str, Any]]:
    """(key, command): `small` orders of 2 lines, `big` ones of 24, `reservation`s of one SKU in 500."""
    for number in range(first, first + count):
        if kind == "reservation":
            sku = f"sku-{number % SKUS}"
            yield sku, ReserveStock(sku, f"o-{number}", 1, AT)
        else:
            order_id = f"o-{number}"
            order_lines = lines(number, 24 if kind == "big" else 2)
            yield (
                order_id,
                PlaceOrder(
                    order_id,
                    **SHOP,
                    occurred_at=AT,
                    lines=order_lines,
                    charges=(),
                    customer_id=f"c-{number % 1000}",
                ),
            )


def receipts() -> Iterator[tuple[str, Any]]:
    """Enough stock for every reservation."""
    for number in range(SKUS):
        yield f"sku-{number}", ReceiveStock(f"sku-{number}", 10**9, "opening", AT)


def lines(number: int, count: int) -> tuple[Line, ...]:
    return tuple(
        Line(f"sku-{(number * 7 + index * 20) % SKUS}", 1 + index % 5, 2_550_000) for index in range(count)
    )


def put_commands(bootstrap: str, service: str, some: Iterable[tuple[str, Any]]) -> int:
    """Produce the commands to their input topics and return how many.

    A reservation's reply goes to its order; the outcomes of other commands go to the last API replica.
    """
    api = ReplyAddress(f"{service}.outcomes", 3, "", "")
    producer = _producer(bootstrap)
    count = 0
    for key, command in some:
        if isinstance(command, ReserveStock):
            put_command(producer, key, command, ReplyAddress("order.inbox", None, "", command.order_id), "")
        else:
            put_command(producer, key, command, api)
        count += 1
    producer.flush(120)
    return count


def lives(count: int, first: int = 0) -> Iterator[list[Envelope[Any]]]:
    """Orders' streams: placed (2 lines, a charge), confirmed, shipped and issued by inventory; 4 events each."""
    for number in range(first, first + count):
        order_id, at = f"o-{number}", AT + number * 1_000_000
        order_lines, charges = lines(number, 2), (Charge("POST", 18_000_000),)
        skus = tuple(dict.fromkeys(line.sku for line in order_lines))
        gross = gross_of(order_lines)
        units = sum([line.quantity for line in order_lines])
        bodies: Sequence[Any] = (
            OrderPlaced(
                order_id, **SHOP, occurred_at=at, lines=order_lines, customer_id=f"c-{number % 1000}",
                charges=charges, gross=gross,
            ),
            OrderConfirmed(order_id, at, skus, **SHOP, units=units, gross=gross),
            OrderShipped(order_id, at, skus, "post", "r-1"),
            moved(order_id, at, skus),
        )  # fmt: skip
        yield [event(order_id, version, body) for version, body in enumerate(bodies, start=1)]


def gross_of(order_lines: Sequence[Line]) -> int:
    """What an order of `lives` costs, in micros: its lines and the charge."""
    return sum([line.quantity * line.unit_price for line in order_lines]) + 18_000_000


def stocks(count: int, first: int, versions: Counter[str]) -> Iterator[list[Envelope[Any]]]:
    """Stock's part of the same orders: each of the 2 lines reserved and issued, 4 events an order. `versions` are those
    that the SKUs have; they are counted on."""
    for number in range(first, first + count):
        order_id, at = f"o-{number}", AT + number * 1_000_000
        for kind in (StockReserved, StockIssued):
            for line in lines(number, 2):
                versions[line.sku] += 1
                yield [event(line.sku, versions[line.sku], kind(line.sku, order_id, line.quantity, at))]


def moved(order_id: str, at: int, skus: Sequence[str]) -> Any:
    """The movements of an order of which inventory issued everything."""
    return MovementsRecorded(order_id, at, tuple(Movement("issue", sku, 0, True, "") for sku in skus))


def event(subject: str, version: int, body: Any) -> Envelope[Any]:
    """An event as the order worker writes it: one that a request over HTTP caused carries its fingerprint."""
    over_http = isinstance(body, OrderPlaced | OrderShipped)
    metadata = Metadata(
        id=uuid7(),
        type=body.TYPE,
        subject=subject,
        source="daybook/order",
        recorded_at=now_micros(),
        correlation_id=uuid7(),
        causation_id=uuid7(),
        epoch=1,
        version=version,
        request_hash=REQUEST_HASH if over_http else "",
    )
    return Envelope(metadata, body)


def interleaved(streams: Iterable[list[Envelope[Any]]], width: int = 200) -> Iterator[Envelope[Any]]:
    """Events of `width` streams at a time, interleaved."""
    some = iter(streams)
    while block := list(itertools.islice(some, width)):
        for together in zip(*block, strict=True):
            yield from together


def put_events(
    bootstrap: str, events: Iterable[Envelope[Any]], per_transaction: int, name: str = "bench"
) -> int:
    """Write events in transactions of that size, with two transactional ids alternately; return how many. Of those who
    write at the same time, each has a `name`."""
    producers = []
    for writer in range(2):
        producer = _producer(bootstrap, {"transactional.id": f"{name}-{writer}", "linger.ms": 0})
        producer.init_transactions(60)
        producers.append(producer)
    some, count = iter(events), 0
    for producer in itertools.cycle(producers):
        batch = list(itertools.islice(some, per_transaction))
        if not batch:
            return count
        producer.begin_transaction()
        for envelope in batch:
            topic = topic_of(envelope.body.TYPE)
            put(producer, topic, encode(topic, envelope.body), envelope.metadata.subject, envelope.metadata)
        producer.commit_transaction(60)
        count += len(batch)
    raise AssertionError("a cycle does not end")


def put_command(
    producer: Producer, key: str, command: Any, reply_to: ReplyAddress, request_hash: str = REQUEST_HASH
) -> str:
    """Queue the command for its input topic and return its id."""
    identity, topic = uuid7(), topic_of(command.TYPE)
    metadata = Metadata(
        id=identity,
        type=command.TYPE,
        subject=key,
        source="daybook/home/bench",
        recorded_at=now_micros(),
        correlation_id=identity,
        causation_id=identity,
        epoch=1,
        request_hash=request_hash,
        reply_to=reply_to,
    )
    put(producer, topic, encode(topic, command), key, metadata)
    return identity


def put(producer: Producer, topic: str, value: bytes, key: str, metadata: Metadata) -> None:
    """Queue one record; wait while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, headers=write_headers(metadata))
            return
        except BufferError:
            producer.poll(0.05)


def _producer(bootstrap: str, more: dict[str, Any] | None = None) -> Producer:
    settings = Connection(bootstrap).librdkafka() | {
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "linger.ms": 20,
        "retry.backoff.ms": 2,
        "retry.backoff.max.ms": 20,
        "queue.buffering.max.messages": 200_000,
    }
    return Producer(settings | (more or {}))
