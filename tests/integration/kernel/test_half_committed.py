"""A broker that forgot some markers of a transaction: what others have seen of it is made whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from contracts.inventory.commands import ReceiveStock
from contracts.inventory.events import StockReceived
from contracts.kernel.records import Outcome, OutcomeBatch
from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from services.kernel.log.completion import Unsettled, settle
from services.kernel.log.control import transactional_ids
from services.kernel.log.reader import high_watermarks, last_stable_offsets, read_to_end
from services.kernel.log.transactions import Transactions, produce, transactional_producer
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, partition_of, uuid7, write_headers
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess

EVENTS, OUTCOMES = "inventory.events", "inventory.outcomes"
PLACES = [(topic, number) for topic in (EVENTS, "inventory.answers", OUTCOMES) for number in (0, 1)]
# An event each: its SKU, version and epoch, whether an outcome of its transaction can be seen, whether the event itself
# can once the log is settled, and whether it is to be written again.
CASES = [
    ("SKU-seen", 1, 1, True, False, True),
    ("SKU-unseen", 1, 1, False, False, False),
    ("SKU-whole", 1, 1, True, True, False),
    ("SKU-late", 1, 2, True, False, False),
    ("SKU-next", 1, 1, False, False, True),  # the next one was decided on it
    ("SKU-next", 2, 1, True, False, True),
]


class Settling(Transactions):
    """The ids of a slot, which left these transactions undecided in the log: they end with it."""

    undecided: Sequence[tuple[Producer, bool]] = ()
    fails = False

    def settle(
        self, partitions: Sequence[tuple[str, int]], offsets: list[TopicPartition], group: Any
    ) -> None:
        super().settle(partitions, offsets, group)
        if (EVENTS, 0) not in partitions:
            return
        if self.fails:
            raise ConnectionError("the worker is killed")
        for producer, commits in self.undecided:
            producer.commit_transaction(30) if commits else producer.abort_transaction(30)
        self.undecided = ()


def test_what_a_visible_outcome_names_is_written_again_once(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    worker = start_worker("inventory")
    worker.wait_ready()
    worker.process.terminate()
    assert worker.process.wait(30) == 0
    transactions = Settling(bootstrap, transactional_ids("inventory", 0), 10_000)
    transactions.fence()
    transactions.undecided = [
        (begun(bootstrap, sku, version, epoch, seen=seen), whole)
        for sku, version, epoch, seen, whole, _ in CASES
    ]
    assert last_stable_offsets(bootstrap, EVENTS, [0, 1]) != high_watermarks(bootstrap, EVENTS, [0, 1])

    slot = Unsettled(transactions, "inventory", [0, 1], PLACES, [], None)
    transactions.fails = True
    with pytest.raises(ConnectionError):  # before anything is lost: the next owner does it all
        settle(bootstrap, [slot], epoch=1)
    transactions.fails = False
    settle(bootstrap, [slot], epoch=1)
    expected = sorted((sku, version) for sku, version, *_, whole, again in CASES if whole or again)
    assert sorted(visible(bootstrap)) == expected
    settle(bootstrap, [slot], epoch=1)
    assert sorted(visible(bootstrap)) == expected
    assert [at for at in visible(bootstrap) if at[0] == "SKU-next"] == [("SKU-next", 1), ("SKU-next", 2)]

    start_worker("inventory").wait_ready()
    skus = sorted({sku for sku, *_ in CASES})
    for sku in skus:
        inventory_client.send(ReceiveStock(sku, 1, "delivery", 1), sku, f"next-{sku}")
    outcomes = inventory_client.wait_for({f"next-{sku}" for sku in skus})
    assert {sku: outcomes[f"next-{sku}"].version for sku in skus} == {
        sku: 1 + max([version for of, version in expected if of == sku], default=0) for sku in skus
    }
    assert check(Evidence(read_evidence(bootstrap), inventory_client.acknowledged())) == []


def begun(bootstrap: str, sku: str, version: int, epoch: int, *, seen: bool) -> Producer:
    """A transaction with an event, which is in the log and undecided there."""
    producer = transactional_producer(bootstrap, f"test-{sku}-{version}", 60_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    name = uuid7()
    about = Metadata(
        id=uuid7(), type=StockReceived.TYPE, subject=sku, source="daybook/inventory", recorded_at=now_micros(),
        correlation_id=name, causation_id=name, epoch=epoch, request_hash="h", version=version,
    )  # fmt: skip
    headers = [*write_headers(about), ("ce_transaction", f"{name}/0/1".encode())]
    value, number = encode(EVENTS, StockReceived(sku, 1, "delivery", 1)), partition_of(sku, 2)
    produce(producer, EVENTS, value, sku, partition=number, headers=headers)
    assert producer.flush(30) == 0
    if seen:
        acknowledged(bootstrap, name)
    return producer


def acknowledged(bootstrap: str, transaction: str) -> None:
    """An outcome of the transaction is visible."""
    outcome = Outcome(
        command_id=transaction, command_type="", subject="", tag="", kind="accepted", version=1, event_ids=(),
        status="", code="", reason="", request_hash="h", replayed=False,
    )  # fmt: skip
    producer = transactional_producer(bootstrap, "test-outcomes", 60_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    within = [("ce_transaction", transaction.encode())]
    produce(
        producer, OUTCOMES, encode(OUTCOMES, OutcomeBatch((outcome,), 1)), None, partition=0, headers=within
    )
    producer.commit_transaction(30)


def visible(bootstrap: str) -> list[tuple[str, int]]:
    """SKU and version of every event that can be seen, in the log's order."""
    events = list[Message](read_to_end(bootstrap, EVENTS, {0: 0, 1: 0}))
    return [
        (record.key().decode(), int(dict(record.headers())["ce_sequence"]))
        for record in events
        if record.key() != b"#epoch"
    ]
