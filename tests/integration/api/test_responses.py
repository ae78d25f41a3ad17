"""The order API's responses to outcomes, over a real broker, with a scripted worker."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from contracts.kernel.records import Outcome
from contracts.order.commands import CancelOrder, PlaceOrder
from contracts.order.events import OrderConfirmed
from infra.log.topics import create_topics
from services.kernel.record.envelope import Metadata, Token, uuid7
from tests.integration.api.processes import process
from tests.integration.api.responder import Responder, accept, outcome
from tests.integration.projection.shop_log import LogWriter, envelope
from tests.ports import free_ports
from tests.scraped import scrape

ORDER: dict[str, Any] = {
    "country": "France",
    "currency": "EUR",
    "lines": [{"sku": "85123A", "quantity": 6, "unit_price": "2.55"}],
}


@pytest.fixture(scope="module")
def health_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def address(kafka: str, health_port: int) -> Iterator[str]:
    create_topics(kafka)
    (port,) = free_ports(1)
    settings = {"health_port": str(health_port), "wait_seconds": "3", "settled_wait_seconds": "1"}
    with process("order", "api", kafka, port, replica="3", **settings):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def api(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture
def worker(kafka: str, address: str) -> Iterator[Responder]:
    assert address, "the API made the topics"
    responder = Responder(kafka)
    yield responder
    responder.close()


async def test_an_accepted_order(api: httpx.AsyncClient, worker: Responder) -> None:
    order_id = uuid7()
    response = await api.post(
        "/orders", json={**ORDER, "order_id": order_id}, headers={"X-Correlation-Id": "talk"}
    )
    (metadata, command), *_ = worker.received
    assert response.status_code == 201
    assert response.json() == {
        "order_id": order_id,
        "version": 1,
        "status": "placed",
        "command_id": metadata.id,
    }
    assert response.headers["location"].endswith(f"/orders/{order_id}")
    assert response.headers["etag"] == '"1"'
    assert Token.decode(response.headers["consistency-token"])[:2] == (f"order/{order_id}", 1)
    assert "idempotency-replayed" not in response.headers
    assert (metadata.subject, metadata.correlation_id, metadata.epoch) == (order_id, "talk", 1)
    assert isinstance(command, PlaceOrder)
    assert command.lines[0].unit_price == 2_550_000


async def test_an_idempotency_key_determines_order_id_and_command_id(
    api: httpx.AsyncClient, worker: Responder
) -> None:
    key = {"Idempotency-Key": uuid7()}
    first, again = [await api.post("/orders", json=ORDER, headers=key) for _ in range(2)]
    assert first.json()["order_id"] == again.json()["order_id"]
    assert first.json()["command_id"] == again.json()["command_id"]
    assert worker.received[0][0].request_hash == worker.received[1][0].request_hash
    other = await api.post(
        f"/orders/{first.json()['order_id']}/cancellation", json={"reason": "twice"}, headers=key
    )
    assert other.json()["command_id"] == first.json()["command_id"]
    assert worker.received[2][0].request_hash != worker.received[0][0].request_hash


async def test_a_fingerprint_ignores_formatting_of_json(api: httpx.AsyncClient, worker: Responder) -> None:
    url, cancellation = "/orders/1/cancellation", b'{"reason": "x"}'
    for body, headers in (
        (cancellation, {}),
        (b' {"reason":"x" }', {}),
        (b'{"reason":"y"}', {}),
        (cancellation, {"If-Match": '"1"'}),
    ):
        await api.post(url, content=body, headers={"Content-Type": "application/json", **headers})
    hashes = [metadata.request_hash for metadata, _ in worker.received]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert worker.received[3][0].expected_version == 1


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"kind": "refused", "code": "order_not_found", "version": 0}, 404, "order_not_found"),
        ({"kind": "refused", "code": "already_shipped", "version": 3}, 409, "already_shipped"),
        ({"kind": "refused", "code": "idempotency_key_reused"}, 422, "idempotency_key_reused"),
        ({"kind": "conflict", "code": "version_conflict", "version": 7}, 412, "version_conflict"),
        ({"kind": "failed", "code": "command_failed"}, 500, "command_failed"),
    ],
)
async def test_refusals_and_conflicts_are_problems(
    api: httpx.AsyncClient, worker: Responder, changes: dict[str, Any], status: int, code: str
) -> None:
    worker.script = lambda metadata, _: outcome(metadata, event_ids=(), replayed=True, **changes)
    response = await api.post("/orders/1/cancellation", json={"reason": "x"})
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"
    if status == 412:
        assert response.headers["etag"] == '"7"'
    if status != 422:
        assert response.headers["idempotency-replayed"] == "true"
    assert isinstance(worker.received[0][1], CancelOrder)


async def test_a_command_without_an_event_is_not_a_creation(
    api: httpx.AsyncClient, worker: Responder
) -> None:
    worker.script = lambda metadata, _: outcome(metadata, event_ids=(), version=4, status="shipped")
    response = await api.post("/orders", json=ORDER)
    assert (response.status_code, response.json().get("code")) == (200, None)
    assert response.headers["etag"] == '"4"'


async def test_a_missing_outcome_is_a_repeatable_503(api: httpx.AsyncClient, worker: Responder) -> None:
    worker.script = lambda *_: None
    response = await api.post("/orders", json=ORDER)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (503, "outcome_unknown")
    assert response.headers["retry-after"] == "1"
    assert response.headers["idempotency-key"] == problem["idempotency_key"]
    worker.script = accept
    repeated = await api.post("/orders", json=ORDER, headers={"Idempotency-Key": problem["idempotency_key"]})
    assert repeated.json()["order_id"] == problem["order_id"]
    assert worker.received[0][0].id == worker.received[1][0].id


async def test_concurrent_requests_with_one_key_get_the_same_response(
    api: httpx.AsyncClient, worker: Responder
) -> None:
    held: list[Metadata] = []

    def first_two_together(metadata: Metadata, _: Any) -> Outcome | None:
        held.append(metadata)
        return outcome(metadata) if len(held) == 2 else None

    worker.script = first_two_together
    key = {"Idempotency-Key": uuid7()}
    responses = await asyncio.gather(*(api.post("/orders", json=ORDER, headers=key) for _ in range(2)))
    assert [response.status_code for response in responses] == [201, 201]
    assert len({response.text for response in responses}) == 1
    assert len(worker.received) == 2


async def test_concurrent_requests_with_different_bodies_do_not_share_a_response(
    api: httpx.AsyncClient, worker: Responder
) -> None:
    worker.script = lambda metadata, body: outcome(metadata) if body.country == "France" else None
    key = {"Idempotency-Key": uuid7()}
    other = {**ORDER, "country": "Spain"}
    mine, theirs = await asyncio.gather(
        api.post("/orders", json=ORDER, headers=key), api.post("/orders", json=other, headers=key)
    )
    assert (mine.status_code, theirs.status_code) == (201, 503)


async def test_bad_input_never_reaches_the_log(api: httpx.AsyncClient, worker: Responder) -> None:
    response = await api.post("/orders", json={**ORDER, "lines": [{**ORDER["lines"][0], "quantity": 0}]})
    assert (response.status_code, response.json()["field"]) == (422, "lines[0].quantity")
    assert (await api.post("/orders?wait=forever", json=ORDER)).json()["field"] == "wait"
    assert (await api.post("/orders/a%20b/cancellation", json={"reason": "x"})).json()["field"] == "order_id"
    for large in (b"x" * 2**21, b"x" * 2**20 + b"x"):
        assert (await api.post("/orders", content=large)).status_code == 413
    assert (await api.post("/orders", content=b"{}")).status_code == 415
    assert (await api.post("/orders", json=ORDER, headers={"Host": "evil.example"})).status_code == 421
    assert (
        await api.post("/orders", json=ORDER, headers={"Origin": "http://evil.example"})
    ).status_code == 403
    for name in ("Idempotency-Key", "If-Match"):  # a proxy that adds a line of its own must not choose
        twice = await api.post("/orders", json=ORDER, headers=[(name, '"1"'), (name, '"2"')])
        assert (twice.status_code, twice.json()["field"]) == (422, name)
    assert worker.received == []


async def test_documents_need_no_network(api: httpx.AsyncClient) -> None:
    page = (await api.get("/docs")).text
    assert "https://" not in page
    assert (await api.get("/docs/swagger-ui-bundle.js")).status_code == 200
    assert (await api.get("/openapi.json")).json()["info"]["title"] == "Daybook orders"


@pytest.mark.usefixtures("worker")
async def test_metrics_count_responses(api: httpx.AsyncClient, health_port: int) -> None:
    await api.post("/orders", json=ORDER)
    text = scrape(health_port)
    assert 'daybook_http_commands_total{kind="accepted",type="daybook.order.PlaceOrder"}' in text
    assert 'daybook_gateway_pending{service="order"} 0.0' in text


async def test_waiting_for_settled_skips_foreign_records(
    api: httpx.AsyncClient, worker: Responder, kafka: str
) -> None:
    """The tail neither ends at one nor believes it."""
    order_id, writer = uuid7(), LogWriter(kafka)
    body = OrderConfirmed(order_id, 1, (), "France", "EUR", 1, 1)
    confirmed = envelope(order_id, 2, body)
    cancelled = envelope(order_id, 2, replace(body, units=2), epoch=2**31 - 1)
    good = [("ce_type", OrderConfirmed.TYPE.encode()), ("ce_id", b"x")]

    def script(metadata: Metadata, command: Any) -> Outcome | None:
        for number in range(2):
            writer.write_record("order.events", number, None, b"", [*good, ("ce_sequence", b"\xff")])
        writer.write([cancelled, confirmed])
        return accept(metadata, command)

    worker.script = script
    response = await api.post("/orders?wait=settled", json={**ORDER, "order_id": order_id})
    assert (response.status_code, response.json()["status"]) == (201, "confirmed")
    token = Token.decode(response.headers["Consistency-Token"])
    assert (token.version, token.event_id) == (2, confirmed.metadata.id)


@pytest.mark.usefixtures("worker")
async def test_waiting_for_settled_is_limited_in_time(api: httpx.AsyncClient) -> None:
    started = time.monotonic()
    response = await api.post("/orders?wait=settled", json=ORDER)
    assert (response.status_code, response.json()["status"]) == (201, "placed")
    assert 0.9 < time.monotonic() - started < 10


async def test_an_outcome_of_another_epoch_is_dropped(api: httpx.AsyncClient, worker: Responder) -> None:
    worker.epoch = 2
    key = {"Idempotency-Key": uuid7()}
    dropped = await api.post("/orders", json=ORDER, headers=key)
    assert (dropped.status_code, dropped.json()["code"]) == (503, "outcome_unknown")
    worker.epoch = 1
    assert (await api.post("/orders", json=ORDER, headers=key)).status_code == 201


async def test_a_token_takes_the_epoch_of_the_outcome(api: httpx.AsyncClient, worker: Responder) -> None:
    epochs = [7, 0]  # 0: an earlier version recorded it

    def script(metadata: Metadata, _: Any) -> Outcome:
        return outcome(metadata, epoch=epochs[len(worker.received) - 1])

    worker.script = script
    responses = [await api.post("/orders", json=ORDER) for _ in epochs]
    assert [Token.decode(response.headers["Consistency-Token"]).epoch for response in responses] == [7, 1]
