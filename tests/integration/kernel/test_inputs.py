"""A service's two inputs: in one batch, in one transaction, each with its fair share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from contracts.inventory.commands import ReceiveStock, ReserveStock
from infra.dr.draining import unconsumed
from infra.lab.checker import Evidence, check, read_evidence
from services.kernel.log.reader import high_watermarks, read_to_end
from services.kernel.record.envelope import read_headers
from tests.integration.api.processes import eventually
from tests.integration.kernel.client import Client
from tests.integration.kernel.test_aborts import TOO_SMALL, largest_event
from tests.integration.kernel.workers import WorkerProcess

Start = Callable[..., WorkerProcess]
INPUTS = ("inventory.inbox", "inventory.commands")
EACH, BACKLOG = 20, 6000


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    client = Client(bootstrap, "inventory")
    yield client
    client.close()


def skus(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def in_stock(client: Client, some: list[str], start_worker: Start) -> None:
    """Deliver all of them, by a worker that has ended at the return."""
    worker = start_worker("inventory")
    for sku in some:
        client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"{sku}-first")
    client.flush()
    client.wait_for({f"{sku}-first" for sku in some})
    worker.end()


def fill(client: Client, some: list[str]) -> set[str]:
    """A reservation in the inbox and a delivery among the commands, for each; their ids."""
    for sku in some:
        client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"{sku}-received")
        client.send(ReserveStock(sku, "an-order", 2, 1), sku, f"{sku}-reserved", to="inbox")
    client.flush()
    return {f"{sku}-{what}" for sku in some for what in ("received", "reserved")}


def committed(bootstrap: str) -> dict[tuple[str, int], int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "inventory-workers"})
    try:
        places = [TopicPartition(topic, number) for topic in INPUTS for number in (0, 1)]
        return {(at.topic, at.partition): at.offset for at in consumer.committed(places, 30)}
    finally:
        consumer.close()


def test_a_worker_says_that_it_reads_its_inbox_before_there_is_anything_in_it(
    bootstrap: str, start_worker: Start
) -> None:
    assert set(committed(bootstrap).values()) == {-1001}
    start_worker("inventory").wait_ready()
    assert set(committed(bootstrap).values()) == {0}


def test_an_abort_with_both_inputs_in_one_batch_goes_back_in_both(
    bootstrap: str, start_worker: Start, client: Client
) -> None:
    some = skus("A", EACH)
    in_stock(client, some, start_worker)
    before = committed(bootstrap)
    both = fill(client, some)
    largest_event(bootstrap, str(TOO_SMALL), "inventory.events")
    worker = start_worker("inventory")
    eventually(lambda: worker.log.read_text().count("transaction_aborted") >= 3, "nothing was rolled back")
    assert not both & client.answered().keys()
    assert committed(bootstrap) == before
    largest_event(bootstrap, None, "inventory.events")
    answers = client.wait_for(both)
    assert {(answer.kind, answer.replayed) for answer in answers.values()} == {("accepted", False)}
    ends = {topic: high_watermarks(bootstrap, topic, [0, 1]) for topic in INPUTS}
    eventually(lambda: not unconsumed(bootstrap, "inventory", ends), "the offsets of an input are missing")

    worker.end()
    start_worker("inventory").wait_ready()
    heard = len(client.outcomes)
    fill(client, some)
    eventually(lambda: len(client.outcomes) == heard + 2 * EACH, "not every repeat is answered")
    assert all(answer.replayed for answer in client.outcomes[heard:])
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_each_input_has_its_share_of_a_batch_and_the_inbox_goes_first(
    bootstrap: str, start_worker: Start, client: Client
) -> None:
    some = skus("S", BACKLOG)
    in_stock(client, some, start_worker)
    start = high_watermarks(bootstrap, "inventory.events", [0, 1])
    both = fill(client, some)
    start_worker("inventory")
    client.wait_for(both)
    batches: dict[str, list[tuple[int, str]]] = {}
    for record in read_to_end(bootstrap, "inventory.events", start):
        metadata = read_headers(record.headers())
        transaction, index, _ = metadata.transaction.split("/")
        batches.setdefault(transaction, []).append((int(index), metadata.type.rpartition(".")[2]))
    full = [[kind for _, kind in sorted(batch)] for batch in batches.values() if len(batch) == 500]
    shared = [kinds for kinds in full if kinds == ["StockReserved"] * 250 + ["StockReceived"] * 250]
    # the first batch, and the last ones, may find one input only
    assert len(shared) >= 3, [Counter(kinds) for kinds in full]
