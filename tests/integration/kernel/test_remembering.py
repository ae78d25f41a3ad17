"""Recorded outcomes, parked commands and restores: over crashes, with markers and aborted data at the end of
the log."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from contracts.inventory.commands import AdjustStock, IssueStock, ReceiveStock, ReserveStock
from contracts.kernel.records import ParkedCommand
from contracts.order.events import ReservationsRecorded
from infra.base.waiting import wait_until
from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from infra.log.control import change_layout
from services.kernel.log.reader import read_to_end
from services.kernel.log.transactions import transactional_producer
from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import Metadata, ReplyAddress, partition_of, write_headers
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import FIRST_BATCH, WorkerProcess
from tests.scraped import metric

pytestmark = pytest.mark.long

Start = Callable[..., WorkerProcess]
NEVER = 1000  # seconds: no snapshot during the test


def commands_of_every_kind(client: Client, sku: str) -> set[str]:
    """Commands that are accepted, refused, in conflict, and refused for an unknown entity; returns their ids."""
    client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"{sku}-accepted")
    client.send(AdjustStock(sku, -9, "broken", 1), sku, f"{sku}-refused")
    client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"{sku}-conflict", expected=7)
    client.send(IssueStock(f"{sku}-no", "O", 1), f"{sku}-no", f"{sku}-unknown")
    return {f"{sku}-accepted", f"{sku}-refused", f"{sku}-conflict", f"{sku}-unknown"}


def repeat(client: Client, ids: set[str]) -> None:
    """Repeats the commands, after one that would change the outcomes if they were decided again."""
    first = client.latest_outcomes()
    client.send(ReceiveStock("tail", 1, "delivery", 1), "tail", f"tail-{time.monotonic()}")
    for command_id in sorted(ids):
        key, command = client.sent[command_id]
        client.send(command, key, command_id, expected=7 if command_id.endswith("conflict") else None)
    wait_until(
        lambda: sum(o.replayed for o in client.outcomes if o.command_id in ids),
        "every outcome is replayed",
        30,
        enough=lambda count: count >= len(ids),
        every=0.02,
    )
    for command_id in ids:
        again, before = client.latest_outcomes()[command_id], first[command_id]
        assert (again.kind, again.version, again.code, again.reason, again.status) == (
            (before.kind, before.version, before.code, before.reason, before.status)
        )
        assert again.event_ids == before.event_ids


def test_every_kind_of_outcome_survives_crashes(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    client = inventory_client
    worker = start_worker("inventory", snapshot_seconds=NEVER)
    ids = commands_of_every_kind(client, "R")
    outcomes = client.wait_for(ids)
    assert {name: outcome.kind for name, outcome in outcomes.items()} == {
        "R-accepted": "accepted",
        "R-refused": "refused",
        "R-conflict": "conflict",
        "R-unknown": "refused",
    }
    worker.end()
    worker = start_worker("inventory", snapshot_seconds=0.3)  # restores from the log alone
    client.send(ReceiveStock("R", 50, "delivery", 1), "R", "R-more")  # the refused one would fit now
    client.wait_for({"R-more"})
    repeat(client, ids)
    time.sleep(1.5)  # snapshots are written
    worker.end()
    start_worker("inventory")  # restores from snapshots
    client.outcomes = [o for o in client.outcomes if not o.replayed]
    repeat(client, ids)
    client.send(ReceiveStock("R", 5, "delivery", 1), "R", "R-accepted", request_hash="another request")
    wait_until(
        lambda: client.latest_outcomes()["R-accepted"].code,
        "another request under the same key is refused",
        30,
        enough=lambda code: code == "idempotency_key_reused",
        every=0.02,
    )
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_every_kind_of_outcome_survives_eviction(start_worker: Start, inventory_client: Client) -> None:
    worker = start_worker("inventory", snapshot_seconds=0.3)
    ids = commands_of_every_kind(inventory_client, "S")
    inventory_client.wait_for(ids)
    wait_until(lambda: metric(worker.port, "daybook_entities_rested_total") >= 1, "an entity rests", 30)
    time.sleep(1.5)  # the SKU is evicted again, also if that happened between two of the commands
    repeat(inventory_client, ids)
    inventory_client.send(ReceiveStock("S", 1, "delivery", 1), "S", "S-later")
    assert inventory_client.wait_for({"S-later"})["S-later"].version == 2


def test_a_sku_may_be_called_as_the_mark_in_its_topic_once_was(
    start_worker: Start, inventory_client: Client
) -> None:
    client, sku = inventory_client, "watermark"
    worker = start_worker("inventory", snapshot_seconds=0.3)
    for number in (1, 2, 3):
        client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"mark-{number}")
    assert client.wait_for({"mark-3"})["mark-3"].version == 3
    time.sleep(1.5)  # snapshots are written
    worker.end()
    start_worker("inventory")
    repeat(client, {"mark-3"})
    client.send(ReceiveStock(sku, 5, "delivery", 1), sku, "mark-4")
    assert client.wait_for({"mark-4"})["mark-4"].version == 4


def test_restoring_passes_markers_and_aborted_data_at_the_tail(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    client = inventory_client
    worker = start_worker("inventory", snapshot_seconds=NEVER)
    client.send(ReceiveStock("T", 5, "delivery", 1), "T", "T-1")
    client.wait_for({"T-1"})
    worker.end()
    foreign = transactional_producer(bootstrap, "an-aborting-writer", 10_000)
    foreign.init_transactions(30)
    for _ in range(3):
        foreign.begin_transaction()
        for topic in ("inventory.events", "inventory.state", "inventory.answers"):
            for partition in (0, 1):
                foreign.produce(topic, b"never visible", "T", partition=partition)
        foreign.flush(10)
        foreign.abort_transaction(10)
    start_worker("inventory").wait_ready()
    client.send(ReceiveStock("T", 5, "delivery", 1), "T", "T-2", expected=1)
    assert client.wait_for({"T-2"})["T-2"].version == 2


def test_poison_is_parked_and_the_slot_goes_on(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    client = inventory_client
    start_worker("inventory")

    def headers(command_id: str, subject: str = "P") -> list[tuple[str, bytes]]:
        kind = ReceiveStock.TYPE
        return write_headers(Metadata(command_id, kind, subject, "test", 1, "c", "c", 1))

    good = encode("inventory.commands", ReceiveStock("P", 1, "delivery", 1))
    wrong_type = encode("order.events", ReservationsRecorded("P", 1, ()))
    client.raw("P", b"not framed", headers("p-1"))
    client.raw("P", good[:-2], headers("p-2"))
    client.raw("P", b"\0\0\0\xff\xff", headers("p-3"))
    client.raw("P", good, [])
    client.raw("P", good, headers("p-5", subject="another"))
    client.raw("P", wrong_type, headers("p-6"))
    nowhere = Metadata("p-8", ReceiveStock.TYPE, "P", "test", 1, "c", "c", 1)
    no_such_topic = ReplyAddress("billing.commands", None, "", "B")
    for address in (no_such_topic, ReplyAddress("order.commands", None, "", "")):
        client.raw("P", good, write_headers(nowhere._replace(reply_to=address)))
    astray = Producer({"bootstrap.servers": bootstrap, "log_level": 3})
    elsewhere = 1 - partition_of("astray", 2)
    astray.produce(
        "inventory.commands", good, "astray", partition=elsewhere, headers=headers("p-7", "astray")
    )
    astray.flush(10)
    client.send(ReceiveStock("P", 3, "delivery", 1), "P", "P-good")
    assert client.wait_for({"P-good"})["P-good"].version == 1
    time.sleep(0.5)  # the worker polls the other partition
    parked: list[ParkedCommand] = [
        decode(record.value()) for record in read_to_end(bootstrap, "inventory.parked", {0: 0, 1: 0})
    ]
    assert len(parked) == 9
    assert all(command.reason for command in parked)
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_an_undeliverable_outcome_stops_nobody(start_worker: Start, inventory_client: Client) -> None:
    client = inventory_client
    start_worker("inventory")
    nowhere = ReplyAddress("inventory.outcomes", 99, "", "")
    client.send(ReceiveStock("Q", 1, "delivery", 1), "Q", "Q-unheard", reply_to=nowhere)
    client.send(ReceiveStock("Q", 1, "delivery", 1), "Q", "Q-heard")
    assert client.wait_for({"Q-heard"})["Q-heard"].version == 2


def test_a_command_of_an_older_epoch_never_wakes_up(start_worker: Start, inventory_client: Client) -> None:
    client = inventory_client
    start_worker("inventory")
    client.send(ReceiveStock("E", 1, "delivery", 1), "E", "E-old", epoch=0)
    client.send(ReceiveStock("E", 2, "delivery", 1), "E", "E-new")
    assert client.wait_for({"E-new"})["E-new"].version == 1
    assert "E-old" not in client.latest_outcomes()


def test_a_frozen_slot_does_not_hold_up_the_others_for_long(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    client = inventory_client
    change_layout(bootstrap, "inventory", 2)
    frozen = start_worker(
        "inventory",
        doom=("send_offsets_to_transaction:after", FIRST_BATCH, "SIGSTOP"),
        transaction_timeout_ms=2000,
    )
    healthy = start_worker("inventory", slot=1)
    frozen.wait_ready()
    healthy.wait_ready()
    skus = {partition_of(f"F{index}", 2): f"F{index}" for index in range(20)}
    client.send(ReceiveStock(skus[0], 1, "delivery", 1), skus[0], "F-frozen")
    client.flush()
    frozen.wait_stopped()
    began = time.monotonic()
    client.send(ReceiveStock(skus[1], 1, "delivery", 1), skus[1], "F-healthy")
    client.wait_for({"F-healthy"}, 30)
    waited = time.monotonic() - began
    frozen.process.send_signal(signal.SIGKILL)
    change_layout(bootstrap, "inventory", 1)
    assert waited < 10, f"{waited:.1f} s behind a transaction whose time is 2 s"
    assert "F-frozen" not in client.latest_outcomes()


def test_a_repeated_reservation_is_accepted_from_the_state(
    start_worker: Start, inventory_client: Client
) -> None:
    client = inventory_client
    start_worker("inventory")
    client.send(ReceiveStock("C", 5, "delivery", 1), "C", "C-receive")
    client.wait_for({"C-receive"})  # the inbox is read before the commands
    for name in ("C-reserve", "C-again"):
        client.send(ReserveStock("C", "order-c", 2, 1), "C", name, request_hash="")
    outcomes = client.wait_for({"C-receive", "C-reserve", "C-again"})
    assert [outcomes[name].kind for name in ("C-reserve", "C-again")] == ["accepted", "accepted"]
    assert (outcomes["C-reserve"].version, outcomes["C-again"].event_ids) == (2, ())
