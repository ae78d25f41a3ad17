"""If the broker rejects a record, the transaction is rolled back and its commands are executed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from contracts.order.commands import PlaceOrder
from infra.lab.checker.evidence import Evidence, read_evidence, read_sent
from infra.lab.checker.invariants import check
from services.kernel.log.reader import read_to_end
from services.kernel.record.codec import decode, received
from tests.bench import bulk
from tests.integration.api.processes import eventually
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess
from tests.scraped import metric

ORDERS, LINES = 40, 3
TOO_SMALL = 100  # bytes: no event of an order fits
ABORTS = 3


def test_what_is_rolled_back_is_executed_again_with_one_outcome(
    bootstrap: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    client = Client(bootstrap, "order")
    worker = start_worker("order")
    worker.wait_ready()
    largest_event(bootstrap, str(TOO_SMALL))
    orders = {f"aborted-{number}" for number in range(ORDERS)}
    for number, order_id in enumerate(sorted(orders)):
        order = PlaceOrder(order_id, **bulk.SHOP, occurred_at=1, lines=bulk.lines(number, LINES), charges=())
        client.send(order, order_id, order_id)
    client.flush()
    eventually(
        lambda: worker.log.read_text().count("transaction_aborted") >= ABORTS, "nothing was rolled back"
    )
    assert metric(worker.port, "daybook_aborted_transactions_total") >= ABORTS
    assert client.outcomes == []
    assert list(read_to_end(bootstrap, "inventory.inbox", {0: 0, 1: 0})) == []

    largest_event(bootstrap, None)
    outcomes = client.wait_for(orders)
    client.close()
    assert {(outcome.kind, outcome.version, outcome.replayed) for outcome in outcomes.values()} == {
        ("accepted", 1, False)
    }
    assert len(client.outcomes) == ORDERS
    reservations = Counter(
        decode(message.value).order_id
        for record in read_to_end(bootstrap, "inventory.inbox", {0: 0, 1: 0})
        for message in received(record)
    )
    assert reservations == dict.fromkeys(orders, LINES)
    sent = read_sent(bootstrap)
    assert sent
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged(), sent=sent)) == []


def largest_event(bootstrap: str, size: str | None, topic: str = "order.events") -> None:
    """Sets the size of the topic's largest record; None restores the broker's default."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    how = AlterConfigOpType.SET if size else AlterConfigOpType.DELETE
    entry = ConfigEntry("max.message.bytes", size, incremental_operation=how)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([change]).values():
        done.result(30)
