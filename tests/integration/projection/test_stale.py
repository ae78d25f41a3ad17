"""A read of a row whose key is parked shows it, with a token and without one."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from services.kernel.record.codec import encode
from services.kernel.record.envelope import Token
from services.projection.engine.parked_keys import parked_keys, retry, skip
from services.projection.read_models import CONVERSATIONS, ORDER_HISTORY, ORDERS, SALES_DAILY, STOCK
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, running, until
from tests.integration.projection.shop_log import Event, order_life, stock_life

OF_ORDERS = (ORDERS, ORDER_HISTORY, SALES_DAILY, CONVERSATIONS)
UNREADABLE = (0).to_bytes(1, "big") + (999_999).to_bytes(4, "big") + b"junk"
WAIT = 50.0


@pytest.fixture
async def api(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    settings = {"wait_seconds": str(WAIT), "max_wait_seconds": str(WAIT)}
    with running("query", shop.kafka, shop.database_url, shop.folder / "query.log", **settings) as query:
        await query.ready()
        async with httpx.AsyncClient(base_url=query.url, timeout=120) as client:
            yield client


def token(event: Event, kind: str) -> dict[str, str]:
    metadata = event.metadata
    made = Token(f"{kind}/{metadata.subject}", metadata.version, metadata.id, metadata.epoch)
    return {"Consistency-Token": made.encode()}


def write_unreadable(shop: Shop, topic: str, event: Event) -> None:
    shop.writer.write_raw(topic, event.metadata, UNREADABLE)


async def parked(shop: Shop, count: int) -> None:
    async def all_parked() -> bool:
        return len(await parked_keys(shop.connection)) == count

    await until(all_parked, "not everything was parked")


def marks(response: httpx.Response) -> tuple[str | None, str | None]:
    assert response.status_code == 200, response.text
    return response.headers.get("daybook-stale"), response.json()["stale"]


async def test_a_parked_order(shop: Shop, api: httpx.AsyncClient) -> None:
    victim, other = order_life("victim", random.Random(11)), order_life("other", random.Random(12))
    shop.writer.write(victim[:1])
    write_unreadable(shop, "order.events", victim[1])
    shop.writer.write([*victim[2:], *other])
    await until(lambda: applied(shop.connection, other), "the other did not go on")
    await parked(shop, len(OF_ORDERS))

    began = time.monotonic()
    for path in ("/orders/victim", "/orders", "/orders/victim/history", "/sales/daily"):
        refused = await api.get(path, headers=token(victim[-1], "order"))
        assert (refused.status_code, refused.json()["code"]) == (503, "key_parked")
        assert "./daybook parked show orders:victim" in refused.json()["detail"]
        assert "retry-after" not in refused.headers
    assert time.monotonic() - began < WAIT, "it waited for what does not come"

    old = await api.get("/orders/victim")
    assert old.json()["version"] == 1
    stale = ("parked", "parked")
    assert marks(old) == marks(await api.get("/orders/victim", headers=token(victim[0], "order"))) == stale
    assert marks(await api.get("/orders/victim/history")) == stale
    assert marks(await api.get("/orders/victim", params={"at": "2999-01-01"})) == stale
    assert marks(await api.get("/orders/victim", params={"at": "version:1"})) == (None, None)
    assert marks(await api.get("/orders/other")) == (None, None)
    page = await api.get("/orders")
    assert marks(page) == stale
    assert {row["order_id"]: row["stale"] for row in page.json()["orders"]} == {
        "victim": "parked", "other": None
    }  # fmt: skip
    assert marks(await api.get("/sales/daily")) == stale
    assert marks(await api.get("/conversations/stuck", params={"older_than": "0"})) == stale
    assert marks(await api.get("/stock")) == (None, None)

    await shop.connection.execute(
        "UPDATE parked SET value = $1 WHERE version = 2", encode("order.events", victim[1].body)
    )
    for model in OF_ORDERS:
        await retry(shop.connection, model, "victim")
    seen = await api.get("/orders/victim", headers=token(victim[-1], "order"))
    assert (seen.json()["version"], marks(seen)) == (len(victim), (None, None))
    assert marks(await api.get("/orders")) == (None, None)


async def test_what_the_read_model_never_showed_is_not_reported_as_missing(
    shop: Shop, api: httpx.AsyncClient
) -> None:
    placed, received = order_life("unseen", random.Random(1))[0], stock_life("sku-1", random.Random(1))[0]
    write_unreadable(shop, "order.events", placed)
    write_unreadable(shop, "inventory.events", received)
    await parked(shop, len(OF_ORDERS) + 1)
    for path, model in (
        ("/orders/unseen", ORDERS),
        ("/orders/unseen/history", ORDER_HISTORY),
        ("/orders/unseen?at=version:1", ORDER_HISTORY),
        ("/stock/sku-1", STOCK),
    ):
        response = await api.get(path)
        assert (response.status_code, response.json()["code"]) == (503, "key_parked"), path
        assert f"show {model.name}:" in response.json()["detail"]
    for path in ("/orders/never", "/orders/never/history", "/stock/never"):
        assert (await api.get(path)).status_code == 404
    assert marks(await api.get("/stock")) == ("parked", "parked")


async def test_a_parked_write_is_not_reported_as_lost(shop: Shop, api: httpx.AsyncClient) -> None:
    """A later epoch has begun in the partition; the write is in the log, behind a parked event."""
    victim = order_life("victim", random.Random(11))
    shop.writer.write(victim[:1])
    write_unreadable(shop, "order.events", victim[1])
    shop.writer.write(victim[2:])
    await parked(shop, len(OF_ORDERS))
    await shop.connection.execute("UPDATE position SET epoch = 2 WHERE topic = 'order.events'")
    await shop.connection.execute(
        "INSERT INTO promotion SELECT 2, topic, partition, 0 FROM position WHERE read_model = 'orders'"
    )
    refused = await api.get("/orders/victim", headers=token(victim[-1], "order"))
    assert (refused.status_code, refused.json()["code"]) == (503, "key_parked")


async def test_a_token_of_a_skipped_event_waits_for_nothing(shop: Shop, api: httpx.AsyncClient) -> None:
    victim = order_life("victim", random.Random(11))
    shop.writer.write(victim[:1])
    write_unreadable(shop, "order.events", victim[1])
    await parked(shop, len(OF_ORDERS))
    for model in OF_ORDERS:
        await skip(shop.connection, model, "victim", "a test")
    began = time.monotonic()
    for path in ("/orders/victim", "/orders", "/orders/victim/history"):
        shown = await api.get(path, headers=token(victim[1], "order"))
        assert marks(shown) == (None, None)
    assert time.monotonic() - began < WAIT, "it waited for what does not come"
    assert (await api.get("/orders/victim")).json()["version"] == 1
    later = await api.get("/orders/victim", headers=token(victim[2], "order"), params={"wait": "1s"})
    assert (later.status_code, later.json()["code"]) == (503, "not_yet_visible")
