"""A small shop on one broker, and a mirror that stops where a test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from contracts.inventory.commands import ReceiveStock
from contracts.kernel.records import PartitionEnd, SiteSwitch, SwitchKind
from contracts.order.commands import CancelOrder, PlaceOrder, ShipOrder
from contracts.order.events import Line
from infra.log.topics import mirrored_topics
from services.kernel.log.reader import partitions_of, read_to_end

AT = 1_700_000_000_000_000
Place = tuple[str, int]


def receive(sku: str, quantity: int) -> Any:
    return ReceiveStock(sku, quantity, "delivery", AT)


def place_order(order_id: str, sku: str, quantity: int) -> Any:
    return PlaceOrder(order_id, "France", "EUR", AT, (Line(sku, quantity, 2_500_000),), ())


def cancel(order_id: str) -> Any:
    return CancelOrder(order_id, "changed my mind", AT)


def ship(order_id: str) -> Any:
    return ShipOrder(order_id, AT, None, None)


def ends(bootstrap: str) -> dict[Place, int]:
    """Behind the last committed record of each mirrored partition."""
    ends_by_partition: dict[Place, int] = {}
    for topic in mirrored_topics():
        for number in partitions_of(bootstrap, topic):
            offsets = [record.offset() for record in read_to_end(bootstrap, topic, {number: 0})]
            ends_by_partition[topic, number] = max(offsets, default=-1) + 1
    return ends_by_partition


def switch(
    source: str, target: str, kind: SwitchKind, epoch: int, last_offsets: Mapping[Place, int]
) -> SiteSwitch:
    """A switch that is done, with these ends of the mirrored log."""
    recorded = tuple(PartitionEnd(*partition, offset) for partition, offset in last_offsets.items())
    return SiteSwitch(epoch, kind, source, target, "promoted", recorded, 0)


def mirror(
    source: str, target: str, cuts: Mapping[Place, int], starts: Mapping[Place, int] | None = None
) -> None:
    """Copy every mirrored record from `starts` to before `cuts`, with key, value, headers, time and partition."""
    producer = Producer({"bootstrap.servers": target, "acks": "all", "enable.idempotence": True})
    for (topic, number), cut in cuts.items():
        first = (starts or {}).get((topic, number), 0)
        for record in read_to_end(source, topic, {number: first}):
            if record.offset() < cut:
                producer.produce(
                    topic,
                    record.value(),
                    record.key(),
                    partition=number,
                    headers=record.headers(),
                    timestamp=record.timestamp()[1],
                )
    assert producer.flush(30) == 0
