"""A service's two inputs: in one batch, in one transaction, each with its share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from contracts.inventory.commands import ReceiveStock, ReserveStock
from contracts.kernel.records import Header, ParkedCommand
from infra.dr.inputs import unconsumed
from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from infra.log.parked import parked_command, parked_commands, retry
from services.kernel.log.reader import high_watermarks, read_to_end
from services.kernel.record.codec import MessageGroup, OutgoingMessage, Record, batch_records, encode
from services.kernel.record.envelope import Metadata, now_micros, partition_of, read_headers
from tests.integration.api.processes import eventually
from tests.integration.kernel.client import Client
from tests.integration.kernel.test_aborts import TOO_SMALL, largest_event
from tests.integration.kernel.workers import WorkerProcess

pytestmark = pytest.mark.long

Start = Callable[..., WorkerProcess]
INPUTS = ("inventory.inbox", "inventory.commands")
EACH, BACKLOG, IN_ONE_RECORD = 20, 6000, 100
FAR = 10_000  # offsets


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    client = Client(bootstrap, "inventory")
    yield client
    client.close()


def skus(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def in_stock(client: Client, some: list[str], start_worker: Start) -> None:
    """Delivers all SKUs; the worker has ended on return."""
    worker = start_worker("inventory")
    for sku in some:
        client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"{sku}-first")
    client.flush()
    client.wait_for({f"{sku}-first" for sku in some})
    worker.end()


def fill(client: Client, some: list[str]) -> set[str]:
    """Sends a reservation to the inbox and a delivery to the commands for each SKU. Returns their ids."""
    for sku in some:
        client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"{sku}-received")
        client.send(ReserveStock(sku, "an-order", 2, 1), sku, f"{sku}-reserved", to="inbox")
    client.flush()
    return {f"{sku}-{what}" for sku in some for what in ("received", "reserved")}


def committed(bootstrap: str) -> dict[tuple[str, int], int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "inventory-workers"})
    try:
        partitions = [TopicPartition(topic, number) for topic in INPUTS for number in (0, 1)]
        return {(at.topic, at.partition): at.offset for at in consumer.committed(partitions, 30)}
    finally:
        consumer.close()


def test_a_worker_commits_offsets_of_its_inbox_while_it_is_empty(bootstrap: str, start_worker: Start) -> None:
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
    assert not both & client.latest_outcomes().keys()
    assert committed(bootstrap) == before
    largest_event(bootstrap, None, "inventory.events")
    outcomes = client.wait_for(both)
    assert {(outcome.kind, outcome.replayed) for outcome in outcomes.values()} == {("accepted", False)}
    ends = {topic: high_watermarks(bootstrap, topic, [0, 1]) for topic in INPUTS}
    eventually(lambda: not unconsumed(bootstrap, "inventory", ends), "the offsets of an input are missing")

    worker.end()
    start_worker("inventory").wait_ready()
    received = len(client.outcomes)
    fill(client, some)
    eventually(lambda: len(client.outcomes) == received + 2 * EACH, "not every repeat has an outcome")
    assert all(outcome.replayed for outcome in client.outcomes[received:])
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_an_input_that_lost_its_end_goes_on_there_and_executes_nothing_again(
    bootstrap: str, start_worker: Start, client: Client
) -> None:
    """Like after a crash of the machine: the offsets were on its disk, the last commands were not."""
    in_stock(client, skus("L", EACH), start_worker)
    before = committed(bootstrap)
    beyond = [TopicPartition(*at, offset + FAR) for at, offset in before.items()]
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "inventory-workers"})
    group.commit(offsets=beyond, asynchronous=False)
    group.close()
    worker = start_worker("inventory")
    worker.wait_ready()
    assert all(before[at] <= offset < before[at] + FAR for at, offset in committed(bootstrap).items())
    assert "input_lost_its_end" in worker.log.read_text()
    received = len(client.outcomes)
    client.send(ReceiveStock("L0", 5, "delivery", 1), "L0", "L0-later")
    assert client.wait_for({"L0-later"})["L0-later"].version == 2
    assert len(client.outcomes) == received + 1


@pytest.mark.full
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
    # the first batch and the last ones may contain one input only
    assert len(shared) >= 3, [Counter(kinds) for kinds in full]


@pytest.mark.full
def test_a_backlog_of_batches_leaves_the_commands_their_half_also_after_an_abort(
    bootstrap: str, start_worker: Start, client: Client
) -> None:
    """Records of 100 messages: what a batch has no room for waits, and is read again if the batch fails."""
    some = skus("B", BACKLOG)
    in_stock(client, some, start_worker)
    start = high_watermarks(bootstrap, "inventory.events", [0, 1])
    for sku in some:
        client.send(ReceiveStock(sku, 5, "delivery", 1), sku, f"{sku}-received")
    client.flush()
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, value, key, more in batches(some):
        producer.produce(topic, value, key, **more)
    assert producer.flush(30) == 0
    largest_event(bootstrap, str(TOO_SMALL), "inventory.events")
    worker = start_worker("inventory")
    eventually(lambda: worker.log.read_text().count("transaction_aborted") >= 3, "nothing was rolled back")
    largest_event(bootstrap, None, "inventory.events")
    client.wait_for({f"{sku}-received" for sku in some})
    ends = {topic: high_watermarks(bootstrap, topic, [0, 1]) for topic in INPUTS}
    eventually(lambda: not unconsumed(bootstrap, "inventory", ends), "the inbox is not read to its end")
    transactions: dict[str, Counter[str]] = {}
    for record in read_to_end(bootstrap, "inventory.events", start):
        metadata = read_headers(record.headers())
        kinds = transactions.setdefault(metadata.transaction.partition("/")[0], Counter())
        kinds[metadata.type.rpartition(".")[2]] += 1
    assert sum(transactions.values(), Counter()) == {"StockReserved": BACKLOG, "StockReceived": BACKLOG}
    assert max(kinds.total() for kinds in transactions.values()) <= 500 + IN_ONE_RECORD
    shared = [kinds for kinds in transactions.values() if 250 <= kinds["StockReserved"] < 250 + IN_ONE_RECORD]
    assert len([kinds for kinds in shared if kinds["StockReceived"] >= 150]) >= 3, list(transactions.values())
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_a_batch_that_an_earlier_worker_parked_is_retried_message_by_message(
    bootstrap: str, start_worker: Start, client: Client
) -> None:
    some = skus("P", EACH)
    in_stock(client, some, start_worker)
    records = list(batches(some))
    positions = [f"{topic}/{more['partition']}/0" for topic, _, _, more in records]
    producer = Producer({"bootstrap.servers": bootstrap})
    for position, (topic, value, _, more) in zip(positions, records, strict=True):
        headers = tuple(Header(name, text) for name, text in more["headers"])
        parked = ParkedCommand(
            topic, more["partition"], 0, "schema id 51 is not in the lock", b"", value, headers, 1
        )
        producer.produce("inventory.parked", encode("inventory.parked", parked), position)
    assert producer.flush(30) == 0
    start_worker("inventory")
    start = high_watermarks(bootstrap, "inventory.events", [0, 1])
    for position in positions:
        retry(bootstrap, parked_command(bootstrap, position))

    def reserved() -> set[bytes]:
        return {record.key() for record in read_to_end(bootstrap, "inventory.events", start)}

    eventually(lambda: reserved() == {sku.encode() for sku in some}, "not every message was executed")
    assert not parked_commands(bootstrap)


def batches(some: list[str]) -> Iterator[Record]:
    """A reservation for each SKU, in records of at most 100 messages."""
    sender = Metadata("", "", "", "daybook/order", now_micros(), "", "", epoch=1)
    about = ReserveStock.TYPE, "c", "e", "", "order.inbox", "an-order"
    for number in (0, 1):
        own = [sku for sku in some if partition_of(sku, 2) == number]
        for first in range(0, len(own), IN_ONE_RECORD):
            messages = [
                OutgoingMessage(
                    f"{sku}-reserved", sku, "", encode(INPUTS[0], ReserveStock(sku, "an-order", 2, 1))
                )
                for sku in own[first : first + IN_ONE_RECORD]
            ]
            group = MessageGroup(INPUTS[0], number, *about, messages)
            yield from batch_records([group], sender)
