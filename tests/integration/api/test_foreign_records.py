"""Clients get responses in time, even if other programs write into the topics of the write path."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import httpx
import pytest
from confluent_kafka import Producer

from contracts.kernel.records import SiteHold, SiteRole, SlotLayout
from services.kernel.log.control import CONTROL, JOURNAL
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, partition_of, uuid7, write_headers
from tests.integration.api.processes import PATIENCE, process
from tests.integration.api.test_with_workers import keyed, order
from tests.ports import free_ports
from tests.stack import site_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with site_broker(tmp_path_factory.mktemp("foreign")) as bootstrap:
        yield bootstrap


@pytest.fixture
async def orders(bootstrap: str) -> AsyncIterator[httpx.AsyncClient]:
    """The order API with its worker, started anew: each finds what the tests before have left."""
    ports = free_ports(2)
    with ExitStack() as stack:
        stack.enter_context(process("order", "worker", bootstrap, ports[0]))
        stack.enter_context(process("order", "api", bootstrap, ports[1], wait_seconds="5"))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports[1]}", timeout=PATIENCE) as client:
            yield client


def put(
    bootstrap: str, topic: str, records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]
) -> None:
    """Each into every partition of the topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 3})
    for number in range(1 if topic in (CONTROL, JOURNAL) else 2):
        for key, value, headers in records:
            producer.produce(topic, value, key, headers=headers, partition=number)
    assert producer.flush(10) == 0


def garbage(bootstrap: str) -> None:
    about = Metadata("x", "daybook.order.CancelOrder", "o", "x", now_micros(), "x", "x", 2**31 - 1)
    commands = [
        (None, None, []),
        (b"k", b"\xff", []),
        (b"o", b"\0\0\0\xff\xff", write_headers(about)),
        (b"o", None, write_headers(about._replace(epoch=1))),
    ]
    put(bootstrap, "order.commands", commands)
    no_headers: list[tuple[str, bytes]] = []
    control = [
        (b"role", b"\xff"),
        (b"role", None),
        (None, b"?"),
        (b"\xff", None),
        (b"role", encode(CONTROL, SiteRole("home", "active", 999))),
        (b"role", encode(CONTROL, SiteRole("home", "passive", 0))),
        (b"hold", encode(CONTROL, SiteRole("home", "passive", 1))),
        (b"layout/order", encode(CONTROL, SlotLayout("order", 99, 7))),
        (b"layout/order", encode(CONTROL, SlotLayout("inventory", 2, 7))),
        (b"storage", encode(CONTROL, SiteHold("quiesced", 1, 1))),
    ]
    put(bootstrap, CONTROL, [(key, value, no_headers) for key, value in control])
    put(bootstrap, "order.answers", [(b"o", b"\xff", []), (None, None, [])])
    put(bootstrap, "order.outcomes", [(b"o", b"\xff", []), (None, None, [])])
    put(bootstrap, JOURNAL, [(b"o", b"\xff", []), (None, None, [])])


@pytest.mark.parametrize("when", ["while it runs", "before a restart"])
async def test_foreign_records_in_the_topics_of_writes_delay_no_request(
    bootstrap: str, orders: httpx.AsyncClient, when: str
) -> None:
    if when == "while it runs":
        garbage(bootstrap)
    for _ in range(5):
        placed = await orders.post("/orders", json=order("sku"), headers=keyed())
        assert (placed.status_code, placed.json()["status"]) == (201, "placed"), placed.text
        assert placed.elapsed.total_seconds() < 3


async def test_commands_to_a_forked_stream_are_refused_with_the_reason(
    bootstrap: str, orders: httpx.AsyncClient
) -> None:
    placed = await orders.post("/orders", json=order("sku"), headers=keyed())
    order_id = placed.json()["order_id"]
    forged = Metadata(
        uuid7(), "daybook.order.OrderConfirmed", order_id, "x", now_micros(), "x", "x", 1, version=1
    )
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 3})
    number = partition_of(order_id, 2)
    producer.produce("order.events", b"?", order_id, headers=write_headers(forged), partition=number)
    assert producer.flush(10) == 0
    for _ in range(100):
        response = await orders.post(
            f"/orders/{order_id}/cancellation", json={"reason": "x"}, headers=keyed()
        )
        if response.status_code == 503:
            break
    assert (response.status_code, response.json()["code"]) == (503, "stream_forked"), response.text
    assert response.json()["idempotency_key"] == response.headers["idempotency-key"]
    assert response.headers["content-type"] == "application/problem+json"
    other = await orders.post("/orders", json=order("sku"), headers=keyed())
    assert other.status_code == 201
