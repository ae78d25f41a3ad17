"""The write APIs with their real workers: the guarantees for clients."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from subprocess import Popen
from typing import Any

import httpx
import pytest

from infra.log.control import lift_storage_block, write_storage_block
from services.kernel.log.reader import high_watermarks, read_to_end
from services.kernel.record.codec import received as messages_in
from services.kernel.record.envelope import Token, uuid7
from tests.integration.api.processes import PATIENCE, process
from tests.ports import free_ports
from tests.stack import site_broker


@dataclass(frozen=True)
class Shop:
    orders: str
    stock: str
    order_worker: "Popen[bytes]"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: other tests leave events that no worker would have written."""
    with site_broker(tmp_path_factory.mktemp("with-workers")) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module")
def shop(kafka: str) -> Iterator[Shop]:
    ports = free_ports(4)
    with ExitStack() as stack:
        worker = stack.enter_context(process("order", "worker", kafka, ports[0]))
        stack.enter_context(process("inventory", "worker", kafka, ports[1]))
        stack.enter_context(process("order", "api", kafka, ports[2], wait_seconds="5"))
        stack.enter_context(process("inventory", "api", kafka, ports[3], wait_seconds="5"))
        yield Shop(f"http://127.0.0.1:{ports[2]}", f"http://127.0.0.1:{ports[3]}", worker)


@pytest.fixture
async def orders(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shop.orders, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
async def stock(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shop.stock, timeout=PATIENCE) as client:
        yield client


def order(sku: str, quantity: int = 2) -> dict[str, Any]:
    line = {"sku": sku, "quantity": quantity, "unit_price": "2.55"}
    return {"country": "France", "currency": "EUR", "lines": [line]}


def keyed(key: str | None = None) -> dict[str, str]:
    return {"Idempotency-Key": key or uuid7()}


async def received(stock: httpx.AsyncClient, quantity: int = 100) -> str:
    sku = uuid7()
    response = await stock.post(f"/stock/{sku}/receipts", json={"quantity": quantity, "reference": "DN-1"})
    assert response.status_code == 200
    assert Token.decode(response.headers["consistency-token"])[:2] == (f"stock/{sku}", 1)
    return sku


async def test_an_order_is_confirmed_shipped_and_returned(
    orders: httpx.AsyncClient, stock: httpx.AsyncClient
) -> None:
    sku = await received(stock)
    key = keyed()
    placed = await orders.post("/orders?wait=settled", json=order(sku), headers=key)
    assert (placed.status_code, placed.json()["status"]) == (201, "confirmed")
    assert (placed.json()["version"], placed.headers["etag"]) == (2, '"2"')
    assert (await orders.post("/orders?wait=settled", json=order(sku), headers=key)).content == placed.content
    url = f"/orders/{placed.json()['order_id']}"
    shipped = await orders.post(f"{url}/shipment", json={}, headers={"If-Match": placed.headers["etag"]})
    assert (shipped.status_code, shipped.json()["status"]) == (200, "shipped")
    body = {"lines": [{"sku": sku, "quantity": 2}], "reason": "broken"}
    assert (await orders.post(f"{url}/returns", json=body)).json()["status"] == "returned"
    refused = await orders.post(f"{url}/cancellation", json={"reason": "late"})
    assert (refused.status_code, refused.json()["code"]) == (409, "already_shipped")


async def test_a_trace_reaches_all_records_that_a_request_causes(
    kafka: str, orders: httpx.AsyncClient, stock: httpx.AsyncClient
) -> None:
    sku = await received(stock)
    topics = ("order.commands", "order.inbox", "order.events", "inventory.inbox", "inventory.events")
    starts = {topic: high_watermarks(kafka, topic, [0, 1]) for topic in topics}
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    headers = {**trace, "X-Correlation-Id": sku}
    placed = await orders.post("/orders?wait=settled", json=order(sku), headers=headers)
    assert placed.json()["status"] == "confirmed"
    caused = [
        (record.topic(), message.metadata.type.rpartition(".")[2], message.metadata.traceparent)
        for topic in topics
        for record in read_to_end(kafka, topic, starts[topic])
        for message in messages_in(record)
        if message.metadata.correlation_id == sku
    ]
    assert sorted(caused) == [
        ("inventory.events", "StockReserved", trace["traceparent"]),
        ("inventory.inbox", "ReserveStock", trace["traceparent"]),
        ("order.commands", "PlaceOrder", trace["traceparent"]),
        ("order.events", "OrderConfirmed", trace["traceparent"]),
        ("order.events", "OrderPlaced", trace["traceparent"]),
        ("order.inbox", "OutcomeBatch", trace["traceparent"]),
    ]


async def test_an_order_without_enough_stock_is_rejected(
    orders: httpx.AsyncClient, stock: httpx.AsyncClient
) -> None:
    sku = await received(stock, 1)
    response = await orders.post("/orders?wait=settled", json=order(sku, 2))
    assert (response.status_code, response.json()["status"]) == (201, "rejected")


async def test_a_repeated_request_gets_the_same_response(
    orders: httpx.AsyncClient, stock: httpx.AsyncClient
) -> None:
    key = keyed()
    first = await orders.post("/orders", json=order("none"), headers=key)
    again = await orders.post("/orders", json=order("none"), headers=key)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["consistency-token"] == first.headers["consistency-token"]
    sku = await received(stock, 5)
    key = keyed()
    body = {"quantity": 5, "reference": "DN-2"}
    versions = [
        (await stock.post(f"/stock/{sku}/receipts", json=body, headers=key)).json()["version"]
        for _ in range(3)
    ]
    assert versions == [2, 2, 2]


async def test_refusals_and_conflicts_are_repeated_too(
    orders: httpx.AsyncClient, stock: httpx.AsyncClient
) -> None:
    sku, key = await received(stock, 5), keyed()
    body = {"quantity": -6, "reason": "mice"}
    first = await stock.post(f"/stock/{sku}/adjustments", json=body, headers=key)
    assert first.status_code == 409
    await stock.post(f"/stock/{sku}/receipts", json={"quantity": 100, "reference": "DN-3"})
    again = await stock.post(f"/stock/{sku}/adjustments", json=body, headers=key)
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")

    conflict = keyed() | {"If-Match": '"7"'}
    stale = await stock.post(f"/stock/{sku}/adjustments", json=body, headers=conflict)
    assert (stale.status_code, stale.headers["etag"]) == (412, '"2"')
    await stock.post(f"/stock/{sku}/receipts", json={"quantity": 1, "reference": "DN-4"})
    repeated = await stock.post(f"/stock/{sku}/adjustments", json=body, headers=conflict)
    assert (repeated.status_code, repeated.headers["etag"]) == (412, '"2"')
    assert repeated.headers["idempotency-replayed"] == "true"

    key = keyed()
    for _ in range(2):
        unknown = await orders.post(f"/orders/{sku}/cancellation", json={"reason": "x"}, headers=key)
        assert (unknown.status_code, unknown.json()["code"]) == (404, "order_not_found")


async def test_if_match_supports_the_wildcard_and_refuses_weak_tags(stock: httpx.AsyncClient) -> None:
    sku = uuid7()
    body = {"quantity": 1, "reference": "DN-5"}

    async def receive(tags: str) -> httpx.Response:
        return await stock.post(f"/stock/{sku}/receipts", json=body, headers=keyed() | {"If-Match": tags})

    missing = await receive("*")
    assert (missing.status_code, missing.headers["etag"]) == (412, '"0"')
    assert (await receive('"0"')).status_code == 200
    assert (await receive("*")).status_code == 200
    weak = await receive('W/"2"')
    assert (weak.status_code, weak.json()["code"], weak.headers["etag"]) == (412, "version_conflict", '"2"')
    assert (await receive('W/"1", "2"')).status_code == 200


async def test_another_request_under_the_key_is_refused(orders: httpx.AsyncClient) -> None:
    key = keyed()
    await orders.post("/orders", json=order("none"), headers=key)
    other = await orders.post("/orders", json=order("none", 3), headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    with_condition = await orders.post("/orders", json=order("none"), headers={**key, "If-Match": '"0"'})
    assert with_condition.status_code == 422


async def test_concurrent_requests_with_one_key_have_one_effect(orders: httpx.AsyncClient) -> None:
    key, order_id = keyed(), uuid7()
    responses = await asyncio.gather(
        *(
            orders.post("/orders", json={**order("none"), "order_id": order_id}, headers=key)
            for _ in range(20)
        )
    )
    assert {response.status_code for response in responses} == {201}
    assert len({response.content for response in responses}) == 1
    second = await orders.post("/orders", json={**order("none"), "order_id": order_id})
    assert (second.status_code, second.json()["code"]) == (409, "order_exists")


async def test_a_nearly_full_disk_refuses_writes_until_there_is_room(
    orders: httpx.AsyncClient, kafka: str
) -> None:
    key = keyed()
    write_storage_block(kafka, "/data", 1_000)
    try:
        async with asyncio.timeout(PATIENCE):
            while (refused := await orders.post("/orders", json=order("none"))).status_code != 507:
                assert refused.status_code == 201
        response = await orders.post("/orders", json=order("none"), headers=key)
        assert (response.status_code, response.json()["code"]) == (507, "storage_full")
        assert response.headers["idempotency-key"] == key["Idempotency-Key"]
        assert response.headers["content-type"] == "application/problem+json"
    finally:
        lift_storage_block(kafka)
    async with asyncio.timeout(PATIENCE):
        while (taken := await orders.post("/orders", json=order("none"), headers=key)).status_code == 507:
            pass
    assert taken.status_code == 201


async def test_a_stopped_worker_is_a_503_and_nothing_is_lost(shop: Shop, orders: httpx.AsyncClient) -> None:
    shop.order_worker.send_signal(signal.SIGSTOP)
    try:
        response = await orders.post("/orders", json=order("none"))
    finally:
        shop.order_worker.send_signal(signal.SIGCONT)
    assert (response.status_code, response.json()["code"]) == (503, "outcome_unknown")
    key = keyed(response.headers["idempotency-key"])
    repeated, again = [await orders.post("/orders", json=order("none"), headers=key) for _ in range(2)]
    assert repeated.status_code == 201
    assert repeated.json()["order_id"] == response.json()["order_id"]
    # the first repeat may get the outcome of the request that timed out
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == repeated.content
