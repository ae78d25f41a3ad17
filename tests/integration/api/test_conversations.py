"""Orders without replies from inventory are listed as stuck, or expire; when inventory is back, all of them end."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest

from infra.lab.checker.evidence import Evidence, read_evidence, read_sent
from infra.lab.checker.invariants import check
from services.kernel.record.envelope import parse_time
from tests.integration.api.processes import PATIENCE, process
from tests.integration.projection.processes import running, until
from tests.ports import free_ports
from tests.stack import site_broker

SETTLE_SECONDS = "1"
STUCK_SECONDS = 2
RETRY_SECONDS = "1"
UNITS = 10


@dataclass
class Shop:
    """`patient` orders do not expire while a test lasts, `hasty` ones do; `stock_worker` can be stopped."""

    kafka: str
    patient: httpx.AsyncClient
    hasty: httpx.AsyncClient
    stock: httpx.AsyncClient
    query: httpx.AsyncClient
    stock_worker: Popen[bytes]
    stock_port: int


@pytest.fixture
async def shop(fresh_database: str, tmp_path: Path) -> AsyncIterator[Shop]:
    ports = free_ports(5)
    async with AsyncExitStack() as stack:
        kafka = stack.enter_context(site_broker(tmp_path))

        stack.enter_context(process("order", "worker", kafka, ports[0], redrive_seconds=RETRY_SECONDS))
        stock_worker = stack.enter_context(process("inventory", "worker", kafka, ports[1]))
        stack.enter_context(process("order", "api", kafka, ports[2], settle_seconds="3600"))
        stack.enter_context(
            process("order", "api", kafka, ports[3], settle_seconds=SETTLE_SECONDS, replica="1")
        )
        stack.enter_context(process("inventory", "api", kafka, ports[4]))
        stack.enter_context(running("project", kafka, fresh_database, tmp_path / "projection.log"))
        query = stack.enter_context(running("query", kafka, fresh_database, tmp_path / "query.log"))
        await query.ready()
        urls = [*(f"http://127.0.0.1:{port}" for port in ports[2:]), query.url]
        clients = [httpx.AsyncClient(base_url=url, timeout=PATIENCE) for url in urls]
        for client in clients:
            await stack.enter_async_context(client)
        patient, hasty, stock, reads = clients
        yield Shop(kafka, patient, hasty, stock, reads, stock_worker, ports[1])


async def test_orders_without_replies_get_stuck_or_expire_and_end_when_inventory_returns(shop: Shop) -> None:
    sku = "mug"
    receipt = {"quantity": UNITS, "reference": "DN-1"}
    assert (await shop.stock.post(f"/stock/{sku}/receipts", json=receipt)).status_code == 200
    shop.stock_worker.send_signal(signal.SIGTERM)
    shop.stock_worker.wait(PATIENCE)
    waiting, expiring = await placed(shop.patient, sku, 2), await placed(shop.hasty, sku, 3)

    await until(lambda: status_is(shop, expiring, "expired"), "the order did not expire")
    await until(lambda: stuck_are(shop, {waiting, expiring}), "what is stuck is not shown")
    rows = {row["order_id"]: row for row in await stuck(shop)}
    assert [(pending["step"], pending["sku"]) for pending in rows[waiting]["awaits"]] == [("reserve", sku)]
    assert [(pending["step"], pending["sku"]) for pending in rows[expiring]["awaits"]] == [("release", sku)]
    assert parse_time(rows[waiting]["since"]) < parse_time(rows[expiring]["since"])
    assert await status_is(shop, waiting, "placed")

    with process("inventory", "worker", shop.kafka, shop.stock_port):
        await until(lambda: status_is(shop, waiting, "confirmed"), "the order was not confirmed")
        await until(lambda: stuck_are(shop, set(), older_than=0), "a conversation does not end")
        assert await status_is(shop, expiring, "expired")
        await until(lambda: stock_is(shop, sku, UNITS, UNITS - 2), "the hold of the order was not released")
    evidence = Evidence(read_evidence(shop.kafka), sent=read_sent(shop.kafka), at_rest=True)
    assert check(evidence) == []


async def placed(api: httpx.AsyncClient, sku: str, quantity: int) -> str:
    line = {"sku": sku, "quantity": quantity, "unit_price": "2.55"}
    response = await api.post("/orders", json={"country": "France", "currency": "EUR", "lines": [line]})
    assert (response.status_code, response.json()["status"]) == (201, "placed")
    order_id: str = response.json()["order_id"]
    return order_id


async def stuck(shop: Shop, older_than: int = STUCK_SECONDS) -> list[dict[str, Any]]:
    response = await shop.query.get("/conversations/stuck", params={"older_than": older_than})
    conversations: list[dict[str, Any]] = response.json()["conversations"]
    return conversations


async def stuck_are(shop: Shop, order_ids: set[str], older_than: int = STUCK_SECONDS) -> bool:
    return {row["order_id"] for row in await stuck(shop, older_than)} == order_ids


async def status_is(shop: Shop, order_id: str, status: str) -> bool:
    response = await shop.query.get(f"/orders/{order_id}")
    return response.status_code == 200 and response.json()["status"] == status


async def stock_is(shop: Shop, sku: str, on_hand: int, available: int) -> bool:
    row = (await shop.query.get(f"/stock/{sku}")).json()
    return (row["on_hand"], row["available"]) == (on_hand, available)
