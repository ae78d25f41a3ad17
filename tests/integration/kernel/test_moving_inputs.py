"""A running shop moves the commands between services to the inbox: old workers beside new ones, deadlines,
and parked commands at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.inventory.commands import ReceiveStock, ReserveStock
from contracts.kernel.records import OutcomeBatch, SlotLayout
from contracts.order.commands import ExpireOrder, PlaceOrder
from contracts.order.events import Line, OrderConfirmed
from infra.base.errors import NotDone
from infra.cli.main import command
from infra.dr.inputs import close, switch
from infra.lab.checker.evidence import Evidence, read_sent
from infra.lab.checker.invariants import check
from infra.log.parked import parked_commands, retry
from infra.log.topics import CONTROL, create_topics, ensure_site
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.control import read_control
from services.kernel.log.reader import high_watermarks, read_to_end
from services.kernel.record.codec import decode, encode, received
from services.kernel.record.envelope import now_micros
from tests.bench import bulk
from tests.integration.api.processes import eventually
from tests.integration.kernel.client import Client
from tests.integration.kernel.test_order_kills import at_rest
from tests.integration.kernel.workers import WorkerProcess
from tests.older_code import unpack
from tests.stack import own_broker

pytestmark = pytest.mark.long

Start = Callable[..., WorkerProcess]
BEFORE = "fc71b08"  # the last commit whose services had one input
SKUS = tuple(f"sku-{number}" for number in range(10))
MANY = 1200  # outcomes: more than two batches
SECOND = 1_000_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A shop of an earlier version: its control topic has no phase of the inputs."""
    with own_broker(tmp_path_factory.mktemp("moving")) as bootstrap:
        create_topics(bootstrap)
        layout = encode(CONTROL, SlotLayout("order", 1, 1))
        deliver(clients.writer(bootstrap), [NewRecord(CONTROL, "layout/order", layout, 0)], 30)
        ensure_site(bootstrap)
        yield bootstrap


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the commit BEFORE."""
    return unpack(BEFORE, tmp_path_factory.mktemp("before"))


def place_orders(client: Client, name: str, count: int, settle_by: int | None = None) -> set[str]:
    """Places orders of one line and waits until all are accepted. Returns their ids."""
    orders = {f"{name}-{number}" for number in range(count)}
    for number, order_id in enumerate(sorted(orders)):
        lines = (Line(SKUS[number % len(SKUS)], 1, SECOND),)
        order = PlaceOrder(order_id, **bulk.SHOP, occurred_at=1, lines=lines, charges=(), settle_by=settle_by)
        client.send(order, order_id, order_id)
    client.flush()
    client.wait_for(orders)
    return orders


def confirmed(bootstrap: str, orders: set[str]) -> None:
    """Waits until every saga has ended; all of these orders are confirmed."""
    last = {event.key: type(event.event) for event in at_rest(bootstrap) if event.topic == "order.events"}
    assert Counter(last[order_id] for order_id in orders) == {OrderConfirmed: len(orders)}


def written(bootstrap: str, topic: str, start: dict[int, int] | None = None) -> Counter[type]:
    return Counter(
        type(decode(message.value))
        for record in read_to_end(bootstrap, topic, start or {0: 0, 1: 0})
        for message in received(record)
    )


def in_stock(client: Client, start_worker: Start) -> WorkerProcess:
    worker = start_worker("inventory")
    for sku in SKUS:
        client.send(ReceiveStock(sku, 10**6, "opening", 1), sku, f"{sku}-opening")
    client.flush()
    client.wait_for({f"{sku}-opening" for sku in SKUS})
    return worker


def moved(bootstrap: str) -> None:
    """Performs both steps if they are still due. Workers of both services must have been ready."""
    for step, phase in ((["switch"], ""), (["close"], "closed"), ([], "closed")):
        done = CliRunner().invoke(command(), ["topics", "inputs", *step, "--kafka", bootstrap])
        assert (done.exit_code, phase in done.output) == (0, True), done.output


@pytest.mark.timeout(600)
def test_an_old_worker_beside_a_new_one_in_both_orders_until_all_have_moved(
    bootstrap: str,
    before: Path,
    start_worker: Start,
    order_client: Client,
    inventory_client: Client,
) -> None:
    in_stock(inventory_client, start_worker).end()
    old_stock = start_worker("inventory", code=before)
    old_order = start_worker("order", code=before)
    orders = place_orders(order_client, "both-old", 20)
    confirmed(bootstrap, orders)
    with pytest.raises(NotDone, match=r"order\.inbox/0"):
        switch(bootstrap)

    old_stock.end()  # its successor executes the rest
    orders = place_orders(order_client, "stock-away", 20)
    new_stock = start_worker("inventory")
    orders |= place_orders(order_client, "old-order-new-stock", 20)
    confirmed(bootstrap, orders)

    old_order.end()
    new_stock.end()
    start_worker("inventory", code=before)
    order_worker = start_worker("order")
    orders = place_orders(order_client, "new-order-old-stock", 20)
    confirmed(bootstrap, orders)
    assert written(bootstrap, "order.inbox") == written(bootstrap, "inventory.inbox") == Counter()

    order_worker.end()
    start_worker("order")  # repeats get their old outcomes
    start_worker("inventory").wait_ready()
    control_at = len(order_client.outcomes)
    for order_id in orders:
        key, command = order_client.sent[order_id]
        order_client.send(command, key, order_id)
    eventually(
        lambda: len(order_client.outcomes) == control_at + len(orders), "not every repeat has an outcome"
    )
    assert all(outcome.replayed for outcome in order_client.outcomes[control_at:])
    with pytest.raises(NotDone, match="switch"):
        close(bootstrap)
    assert check(Evidence(at_rest(bootstrap), order_client.acknowledged(), sent=read_sent(bootstrap))) == []


@pytest.mark.full
@pytest.mark.timeout(600)
def test_no_order_expires_whose_outcomes_wait_among_the_commands_at_the_switch(
    bootstrap: str, start_worker: Start, order_client: Client, inventory_client: Client
) -> None:
    assert read_control(bootstrap).phase == "commands"
    in_stock(inventory_client, start_worker).end()
    start = high_watermarks(bootstrap, "order.commands", [0, 1])
    stopped = start_worker("order")
    deadline = now_micros() + 20 * SECOND
    orders = place_orders(order_client, "waiting", MANY, deadline)
    stopped.end()
    start_worker("inventory")
    eventually(
        lambda: written(bootstrap, "order.commands", start)[OutcomeBatch] >= MANY,
        "not all commands have an outcome",
    )
    switch(bootstrap)
    eventually(lambda: now_micros() > deadline, "the deadline does not pass")
    start_worker("order", redrive_seconds=0.01)  # checks overdue commands at once
    confirmed(bootstrap, orders)
    assert written(bootstrap, "order.inbox")[ExpireOrder] == 0

    more = place_orders(order_client, "moved", 50)
    confirmed(bootstrap, more)
    assert written(bootstrap, "order.inbox")[OutcomeBatch] > 0
    assert written(bootstrap, "inventory.inbox")[ReserveStock] >= 50
    close(bootstrap)
    assert read_control(bootstrap).phase == "closed"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_no_order_expires_whose_outcomes_wait_in_the_inbox(
    bootstrap: str, start_worker: Start, order_client: Client, inventory_client: Client
) -> None:
    stock, stopped = in_stock(inventory_client, start_worker), start_worker("order")
    stopped.wait_ready()
    moved(bootstrap)
    stock.end()
    start = high_watermarks(bootstrap, "order.inbox", [0, 1])
    deadline = now_micros() + 20 * SECOND
    orders = place_orders(order_client, "late", MANY, deadline)
    stopped.end()
    start_worker("inventory")
    eventually(
        lambda: written(bootstrap, "order.inbox", start)[OutcomeBatch] >= MANY,
        "not all commands have an outcome",
    )
    eventually(lambda: now_micros() > deadline, "the deadline does not pass")
    start_worker("order", redrive_seconds=0.01)
    confirmed(bootstrap, orders)


def test_each_command_on_the_other_input_is_parked(
    bootstrap: str, start_worker: Start, inventory_client: Client
) -> None:
    """After the move. A retry sends a worker's command to the inbox."""
    client = inventory_client
    in_stock(client, start_worker)
    start_worker("order").wait_ready()
    moved(bootstrap)
    client.send(ReserveStock("sku-0", "forged", 1, 1), "sku-0", "on-commands", to="commands")
    client.send(ReceiveStock("sku-0", 1, "delivery", 1), "sku-0", "on-inbox", to="inbox")
    outcomes = client.wait_for({"on-commands", "on-inbox"})
    assert {(outcome.kind, outcome.code) for outcome in outcomes.values()} == {("failed", "command_failed")}
    parked = {record.header("ce_id"): record for record in parked_commands(bootstrap)}
    assert parked.keys() == {"on-commands", "on-inbox"}
    retry(bootstrap, parked["on-commands"])
    retry(bootstrap, parked["on-inbox"])
    eventually(
        lambda: {client.latest_outcomes()[name].kind for name in parked} == {"accepted"},
        "a retry is not executed",
    )
    assert parked_commands(bootstrap) == []
