"""Large records do not stop a slot: poison of several megabytes, and an entity with a large state."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from structlog.testing import capture_logs

from contracts.inventory.commands import IssueStock, ReceiveStock, ReserveStock
from contracts.kernel.records import ParkedCommand, Snapshot
from contracts.order.commands import PlaceOrder
from contracts.order.events import Line, OrderPlaced
from infra.log.parked import parked_commands, retry
from services.inventory.service import INVENTORY
from services.kernel.log.reader import read_to_end
from services.kernel.log.rule import Journal
from services.kernel.log.transactions import LARGEST_RECORD
from services.kernel.record.codec import decode
from services.kernel.record.envelope import Metadata, partition_of, read_headers, write_headers
from services.kernel.worker import snapshots
from services.kernel.worker.command_loop import MAX_EFFECTS
from services.kernel.worker.restore import restore
from services.kernel.worker.retry_window import Window
from services.kernel.worker.slot import Slot, SlotConfig
from services.kernel.worker.snapshots import WATERMARK_KEY, StateCodec
from services.order.service import ORDER
from tests.bench import bulk
from tests.integration.api.processes import eventually
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess

pytestmark = pytest.mark.long

Start = Callable[..., WorkerProcess]
POISON_BYTES = 4_000_000  # an API sends no more
STEPS = 6_000
LONG_NAME = "o" * 180  # so that few steps make a large snapshot
ORDERS = 20
WINDOW = Window(24.0, 1_000_000)


def test_large_poison_is_parked_and_the_slot_goes_on(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    start_worker("inventory")
    kind = ReceiveStock.TYPE
    large = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 8_000_000, "log_level": 3})
    headers = write_headers(Metadata("large-value", kind, "P", "test", 1, "c", "c", 1))
    large.produce("inventory.commands", b"\0" * POISON_BYTES, "P", headers=headers)
    headers = [("ce_id", b"\xff" * POISON_BYTES)]
    large.produce("inventory.commands", b"", "P", headers=headers)
    large.flush(30)
    inventory_client.send(ReceiveStock("P", 3, "delivery", 1), "P", "P-good")
    assert inventory_client.wait_for({"P-good"}, 30)["P-good"].version == 1
    parked: list[ParkedCommand] = [
        decode(record.value()) for record in read_to_end(bootstrap, "inventory.parked", {0: 0, 1: 0})
    ]
    assert sorted(len(command.value) for command in parked) == [0, POISON_BYTES]
    assert all(0 < len(command.reason) < 1000 for command in parked)
    (whole,) = [entry for entry in parked_commands(bootstrap) if entry.command.value]
    retry(bootstrap, whole)
    inventory_client.send(ReceiveStock("P", 3, "delivery", 1), "P", "P-later")
    assert inventory_client.wait_for({"P-later"}, 30)["P-later"].version == 2
    assert len([entry for entry in parked_commands(bootstrap) if entry.command.value]) == 1


def test_a_popular_sku_is_restored_from_its_snapshot(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    client = inventory_client
    worker = start_worker("inventory", snapshot_seconds=0.5)
    client.send(ReceiveStock("HOT", STEPS, "delivery", 1), "HOT", "received")
    client.wait_for({"received"})  # the other input: nothing orders it before the reservations
    for number in range(STEPS):
        order_id = f"{LONG_NAME}{number}"
        client.send(ReserveStock("HOT", order_id, 1, 1), "HOT", f"r-{number}", request_hash="")
        if number % 2:
            client.send(IssueStock("HOT", order_id, 1), "HOT", f"i-{number}", request_hash="")
    last = client.wait_for({f"i-{STEPS - 1}"}, 120)[f"i-{STEPS - 1}"]
    assert last.version == 1 + STEPS + STEPS // 2
    eventually(lambda: is_whole(last_snapshot(bootstrap, "HOT"), last.version), "its snapshot is not written")
    eventually(lambda: is_marked(bootstrap, "HOT"), "no watermark follows its snapshot")
    worker.end()
    held = restore(bootstrap, INVENTORY, StateCodec(INVENTORY.states), WINDOW, [0, 1], 2, Journal())
    part = held.partitions[partition_of("HOT", 2)]
    snapshot = part.evicted("HOT")
    assert snapshot is not None, "it was folded from the log, not read from its snapshot"
    assert len(snapshot) > 1_000_000
    stock = part.get("HOT").state
    assert (len(stock.reservations), len(stock.closed)) == (STEPS // 2, STEPS // 2)
    start_worker("inventory")
    client.send(ReserveStock("HOT", f"{LONG_NAME}1", 1, 1), "HOT", "again", request_hash="")
    again = client.wait_for({"again"})["again"]
    assert (again.kind, again.version, again.event_ids) == ("accepted", last.version, ())


def test_a_snapshot_too_large_for_its_topic_holds_up_the_watermark_and_nobody_else(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = OrderPlaced(
        "large", **bulk.SHOP, occurred_at=1, lines=bulk.lines(1, 400), customer_id="c", charges=(), gross=1
    )
    large = bulk.event("large", 1, placed)
    bulk.put_events(bootstrap, [*bulk.interleaved(bulk.lives(ORDERS)), large], 50)
    monkeypatch.setattr(snapshots, "LARGEST", 2_000)
    config = SlotConfig(bootstrap, 0, 1, 1, 10_000, WINDOW, snapshot_seconds=3600)
    slot: Slot[Any, Any, Any] = Slot(ORDER, config, print)
    consumer = slot.open()
    try:
        with capture_logs() as entries:
            assert slot.snapshot() == ORDERS
        assert [(entry["event"], entry["keys"]) for entry in entries] == [("snapshot_too_large", ["large"])]
        assert not watermarks(bootstrap)
        monkeypatch.setattr(snapshots, "LARGEST", LARGEST_RECORD)
        assert slot.snapshot() == 1
        assert len(watermarks(bootstrap)) == 2
    finally:
        slot.close()
        consumer.close()
        del slot, consumer
        gc.collect()  # its producers would keep connecting to the broker after the last test


def watermarks(bootstrap: str) -> list[Message]:
    some = read_to_end(bootstrap, "order.state", {0: 0, 1: 0})
    return [record for record in some if record.key().decode() == snapshots.WATERMARK_KEY]


def test_large_orders_are_cut_into_transactions_of_bounded_size(bootstrap: str, start_worker: Start) -> None:
    count, lines = 25, tuple(Line(f"sku-{number}", 1, 1) for number in range(1000))
    shop = {**bulk.SHOP, "occurred_at": 1, "lines": lines, "charges": ()}
    orders = [PlaceOrder(f"wide-{number}", **shop) for number in range(count)]
    bulk.put_commands(bootstrap, "order", [(order.order_id, order) for order in orders])
    start_worker("order")
    eventually(lambda: len(of_a_transaction(bootstrap, orders)) == count, "not all are placed")
    placed = of_a_transaction(bootstrap, orders)
    assert max(placed.values()) <= MAX_EFFECTS // 1000


def of_a_transaction(bootstrap: str, orders: Sequence[PlaceOrder]) -> dict[str, int]:
    """For each order, the number of events in the transaction that placed it."""
    ours, counts = {order.order_id for order in orders}, dict[str, int]()
    for record in read_to_end(bootstrap, "order.events", {0: 0, 1: 0}):
        about = read_headers(record.headers())
        if about.subject in ours and about.version == 1:
            assert about.subject not in counts
            counts[about.subject] = int(about.transaction.rpartition("/")[2])
    return counts


def is_whole(snapshot: Snapshot, version: int) -> bool:
    """Whether the snapshot has this version, and its worker had read back all its own events: a restore reads
    the others from the log."""
    return snapshot.version == version and not snapshot.unread


def is_marked(bootstrap: str, key: str) -> bool:
    """Whether a watermark stands behind the newest snapshot: it is written afterwards, and a worker that ends between
    both is restored from the events since the watermark before."""
    *_, last = read_to_end(bootstrap, "inventory.state", {partition_of(key, 2): 0})
    return bool(last.key() == WATERMARK_KEY.encode())


def last_snapshot(bootstrap: str, key: str) -> Snapshot:
    """The newest snapshot of this entity; one of version 0 if there is none."""
    newest = Snapshot("", 0, 0, b"", ())
    for record in read_to_end(bootstrap, "inventory.state", {0: 0, 1: 0}):
        if record.key().decode() == key:
            newest = decode(record.value())
    return newest
