"""Who did what: every event names the principal that caused it, from the request to the other service's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from infra.base.waiting import wait_until
from infra.lab.checker.evidence import read_evidence
from services.kernel.log.reader import read_to_end
from services.kernel.log.rule import OPENING_KEY
from services.kernel.record.codec import received
from services.kernel.record.envelope import SYSTEM, UNAUTHENTICATED, AuthContext, read_headers, uuid7
from tests.integration.api.processes import PATIENCE, process
from tests.ports import free_ports
from tests.stack import site_broker
from tests.unit.api.access_tokens import AUDIENCE, EC, ISSUER, public, token

CUSTOMER, OTHER, WAREHOUSE, TILL, DESK = (f"{name}-5f1e8a52" for name in ("c", "d", "w", "t", "k"))
EVENTS = ("order.events", "inventory.events")
SCOPES = {
    CUSTOMER: "orders:place",
    OTHER: "orders:place",
    WAREHOUSE: "orders:ship orders:return stock:receive",
    TILL: "orders:place.any",
    DESK: "orders:place.any",
}


class Shop(NamedTuple):
    kafka: str
    orders: str
    stock: str
    open_orders: str
    """An API that verifies no tokens, as after `--insecure`."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("principals")
    keys: Path = folder / "jwks.json"
    keys.write_text(public(EC))
    tokens = {
        "token_keys": str(keys),
        "token_issuer": ISSUER,
        "token_audience": AUDIENCE,
        "wait_seconds": "5",
    }
    ports = free_ports(5)
    with site_broker(folder) as kafka, ExitStack() as stack:
        for number, (service, part, more) in enumerate(
            (
                ("order", "worker", {}),
                ("inventory", "worker", {}),
                ("order", "api", {**tokens, "settle_seconds": "2"}),
                ("inventory", "api", tokens),
                ("order", "api", {"replica": "1"}),
            )
        ):
            stack.enter_context(process(service, part, kafka, ports[number], **more))
        yield Shop(kafka, *(f"http://127.0.0.1:{port}" for port in ports[2:]))


class Clients:
    """A client for each principal; `""`: nobody known."""

    def __init__(self, shop: Shop, stack: AsyncExitStack) -> None:
        self._shop, self._stack = shop, stack

    async def of(self, subject: str, stock: bool = False) -> httpx.AsyncClient:
        url = self._shop.stock if stock else self._shop.orders if subject else self._shop.open_orders
        client = subject if subject == TILL else "browser"
        bearer = token(sub=subject, client_id=client, scope=SCOPES[subject]) if subject else ""
        headers = {"Authorization": f"Bearer {bearer}"} if subject else {}
        return await self._stack.enter_async_context(
            httpx.AsyncClient(base_url=url, timeout=PATIENCE, headers=headers)
        )


@pytest.fixture
async def clients(shop: Shop) -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(shop, stack)


def order(sku: str) -> dict[str, object]:
    line = {"sku": sku, "quantity": 1, "unit_price": "2.55"}
    return {"country": "France", "currency": "EUR", "lines": [line]}


def causes(kafka: str) -> dict[tuple[str, str], set[AuthContext]]:
    """Who caused the events of each entity, by type."""
    named: dict[tuple[str, str], set[AuthContext]] = {}
    for event in read_evidence(kafka):
        at = event.key, event.metadata.type.rpartition(".")[2]
        named.setdefault(at, set()).add(event.metadata.auth)
    return named


async def in_stock(clients: Clients) -> str:
    sku = uuid7()
    warehouse = await clients.of(WAREHOUSE, stock=True)
    response = await warehouse.post(f"/stock/{sku}/receipts", json={"quantity": 9, "reference": "DN-1"})
    assert response.status_code == 200
    return sku


async def placed(client: httpx.AsyncClient, sku: str, status: str = "confirmed") -> str:
    response = await client.post("/orders?wait=settled", json=order(sku))
    assert (response.status_code, response.json()["status"]) == (201, status)
    return str(response.json()["order_id"])


async def test_each_event_names_who_caused_it(shop: Shop, clients: Clients) -> None:
    """A customer orders, the warehouse ships and takes back: each step names its own principal at both services."""
    sku = await in_stock(clients)
    order_id = await placed(await clients.of(CUSTOMER), sku)
    by_till = await placed(await clients.of(TILL), sku)
    by_nobody = await placed(await clients.of(""), sku)
    warehouse = await clients.of(WAREHOUSE)
    assert (await warehouse.post(f"/orders/{order_id}/shipment", json={})).status_code == 200
    back = {"lines": [{"sku": sku, "quantity": 1}], "reason": "broken"}
    assert (await warehouse.post(f"/orders/{order_id}/returns", json=back)).status_code == 200
    user = AuthContext("user", CUSTOMER)
    worker = AuthContext("user", WAREHOUSE)
    till = AuthContext("service_account", TILL)

    def settled() -> dict[tuple[str, str], set[AuthContext]]:
        named = causes(shop.kafka)
        return named if (sku, "StockReturned") in named else {}

    named = await asyncio.to_thread(wait_until, settled, "the return reaches the stock", PATIENCE)
    assert {kind: who for (key, kind), who in named.items() if key == order_id} == {
        "OrderPlaced": {user},
        "OrderConfirmed": {user},
        "OrderShipped": {worker},
        "OrderReturned": {worker},
        "MovementsRecorded": {worker},
    }
    assert {kind: who for (key, kind), who in named.items() if key == sku} == {
        "StockReceived": {worker},
        "StockReserved": {user, till, UNAUTHENTICATED},
        "StockIssued": {worker},
        "StockReturned": {worker},
    }
    assert named[by_till, "OrderConfirmed"] == {till}
    assert named[by_nobody, "OrderConfirmed"] == {UNAUTHENTICATED}


async def test_every_record_of_the_log_names_its_principal(shop: Shop, clients: Clients) -> None:
    """Nothing is `unknown`: no event, and no message between services. Services open epochs of their own accord."""
    await placed(await clients.of(CUSTOMER), await in_stock(clients))
    events = read_evidence(shop.kafka)
    assert len(events) >= 3
    assert {event.metadata.auth.type for event in events} <= {
        "user",
        "service_account",
        "system",
        "unauthenticated",
    }
    assert all(
        bool(event.metadata.auth.id) == (event.metadata.auth.type in ("user", "service_account"))
        for event in events
    )
    openings = [
        read_headers(record.headers()).auth
        for topic in EVENTS
        for record in read_to_end(shop.kafka, topic, {0: 0, 1: 0})
        if record.key() == OPENING_KEY.encode()
    ]
    assert set(openings) <= {SYSTEM}
    messages = [
        message.metadata.auth.type
        for topic in ("order.commands", "order.inbox", "inventory.commands", "inventory.inbox")
        for record in read_to_end(shop.kafka, topic, {0: 0, 1: 0})
        for message in received(record)
    ]
    assert messages
    assert "unknown" not in messages


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def placements(kafka: str, *order_ids: str) -> list[str]:
    return [
        event.key
        for event in read_evidence(kafka)
        if event.key in order_ids and event.metadata.type == "daybook.order.OrderPlaced"
    ]


@pytest.mark.parametrize("named", [True, False])
async def test_a_repeat_across_the_upgrade_places_one_order(
    shop: Shop, clients: Clients, named: bool
) -> None:
    """Without verified tokens an API gives commands the ids that it gave before keys were per principal."""
    sku, key = await in_stock(clients), keyed(uuid7())
    body = order(sku) | {"customer_id": CUSTOMER} | ({"order_id": uuid7()} if named else {})
    before, after = await clients.of(""), await clients.of(CUSTOMER)
    first = await before.post("/orders", json=body, headers=key)
    again = await after.post("/orders", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotency-replayed"] == "true"
    same = first.json() | {"command_id": again.json()["command_id"]}
    assert again.json() == same
    assert again.headers["etag"] == first.headers["etag"]
    other = await (await clients.of(OTHER)).post("/orders", json=order(sku), headers=key)
    assert (other.status_code, "idempotency-replayed" in other.headers) == (201, False)
    order_id, its_own = first.json()["order_id"], other.json()["order_id"]
    assert sorted(placements(shop.kafka, order_id, its_own)) == sorted({order_id, its_own})


async def test_the_same_key_of_two_principals_is_two_requests(clients: Clients) -> None:
    sku, key = await in_stock(clients), keyed("1")
    customer, other = await clients.of(CUSTOMER), await clients.of(OTHER)
    mine = await customer.post("/orders", json=order(sku), headers=key)
    others = await other.post("/orders", json=order(sku), headers=key)
    assert (mine.status_code, others.status_code) == (201, 201)
    assert mine.json()["order_id"] != others.json()["order_id"]
    assert (await customer.post("/orders", json=order(sku), headers=key)).content == mine.content
    named = order(sku) | {"order_id": mine.json()["order_id"]}
    taken = await other.post("/orders", json=named, headers=key)
    assert (taken.status_code, taken.json()["code"]) == (409, "order_exists")


async def test_the_same_key_of_two_principals_at_one_entity_is_two_commands(
    shop: Shop, clients: Clients
) -> None:
    order_id, key = await placed(await clients.of(CUSTOMER), await in_stock(clients)), keyed("2")
    url, body = f"/orders/{order_id}/cancellation", {"reason": "ordered twice"}
    first = await (await clients.of(TILL)).post(url, json=body, headers=key)
    second = await (await clients.of(DESK)).post(url, json=body, headers=key)
    assert (first.status_code, second.status_code) == (200, 200)
    assert "idempotency-replayed" not in second.headers
    assert first.json()["command_id"] != second.json()["command_id"]
    (cancelled,) = [
        who for (at, kind), who in causes(shop.kafka).items() if (at, kind) == (order_id, "OrderCancelled")
    ]
    assert cancelled == {AuthContext("service_account", TILL)}
