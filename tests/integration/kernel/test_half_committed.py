"""A broker that forgot some markers of a transaction: what others have seen of it is made whole."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Message, Producer

from contracts.inventory.commands import ReceiveStock
from contracts.inventory.events import StockReceived
from contracts.kernel.records import Outcome, OutcomeBatch
from infra.lab.checker import Evidence, check, read_evidence
from services.kernel.log.reader import high_watermarks, last_stable_offsets, read_to_end
from services.kernel.log.transactions import Transactions, produce, transactional_producer
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, partition_of, uuid7, write_headers
from services.kernel.worker.completion import hidden_records, write_again
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess

EVENTS, OUTCOMES = "inventory.events", "inventory.outcomes"
SKUS = ("SKU-seen", "SKU-unseen", "SKU-whole")


def test_what_a_visible_outcome_names_is_written_again_once(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    """Three transactions that the broker has not decided in the log: an outcome of the first is visible, none of the
    second, and the third becomes visible by itself."""
    worker = start_worker("inventory")
    worker.wait_ready()
    worker.process.terminate()
    assert worker.process.wait(30) == 0
    undecided = {sku: begun(bootstrap, sku) for sku in SKUS}
    numbers = sorted(high_watermarks(bootstrap, EVENTS, [0, 1]))
    assert last_stable_offsets(bootstrap, EVENTS, numbers) != high_watermarks(bootstrap, EVENTS, numbers)
    hidden = hidden_records(bootstrap, "inventory", numbers)
    assert {record.key().decode() for record in hidden} == {*SKUS}

    seen, whole = (transaction_of(hidden, sku) for sku in ("SKU-seen", "SKU-whole"))
    acknowledged(bootstrap, seen)
    acknowledged(bootstrap, whole)
    for sku, producer in undecided.items():
        producer.commit_transaction(30) if sku == "SKU-whole" else producer.abort_transaction(30)
    transactions = Transactions(bootstrap, ["inventory-slot-0-a", "inventory-slot-0-b"], 10_000)
    transactions.fence()
    write_again(transactions, bootstrap, "inventory", hidden, epoch=2)
    assert [record.key() for record in events(bootstrap)] == [b"SKU-whole"]
    write_again(transactions, bootstrap, "inventory", hidden, epoch=1)
    assert sorted(record.key().decode() for record in events(bootstrap)) == ["SKU-seen", "SKU-whole"]
    assert hidden_records(bootstrap, "inventory", numbers) == []
    write_again(transactions, bootstrap, "inventory", [], epoch=1)

    start_worker("inventory").wait_ready()
    for sku in SKUS:
        inventory_client.send(ReceiveStock(sku, 1, "delivery", 1), sku, f"next-{sku}")
    outcomes = inventory_client.wait_for({f"next-{sku}" for sku in SKUS})
    assert {sku: outcomes[f"next-{sku}"].version for sku in SKUS} == {
        "SKU-seen": 2,
        "SKU-unseen": 1,
        "SKU-whole": 2,
    }
    assert check(Evidence(read_evidence(bootstrap), inventory_client.acknowledged())) == []


def begun(bootstrap: str, sku: str) -> Producer:
    """A transaction with an event of this SKU, which is in the log and not decided."""
    producer = transactional_producer(bootstrap, f"test-{sku}", 60_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    name = uuid7()
    about = Metadata(
        id=uuid7(), type=StockReceived.TYPE, subject=sku, source="daybook/inventory", recorded_at=now_micros(),
        correlation_id=name, causation_id=name, epoch=1, request_hash="h", version=1,
    )  # fmt: skip
    headers = [*write_headers(about), ("ce_transaction", f"{name}/0/1".encode())]
    number = partition_of(sku, 2)
    produce(
        producer,
        EVENTS,
        encode(EVENTS, StockReceived(sku, 1, "delivery", 1)),
        sku,
        partition=number,
        headers=headers,
    )
    assert producer.flush(30) == 0
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


def transaction_of(records: list[Message], sku: str) -> str:
    """The id of the transaction in which the SKU's event was written."""
    headers = next(dict(record.headers()) for record in records if record.key() == sku.encode())
    return str(headers["ce_transaction"].split(b"/")[0], "ascii")


def events(bootstrap: str) -> list[Message]:
    """The visible ones of the three SKUs."""
    return [
        record for record in read_to_end(bootstrap, EVENTS, {0: 0, 1: 0}) if record.key().decode() in SKUS
    ]
