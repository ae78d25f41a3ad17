"""Reads over HTTP: the OpenAPI document, HEAD and If-None-Match, compression, and no stale data in caches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from services.projection.api import query_app
from services.projection.engine.settings import QuerySettings
from tests.contract.conformance import started, statuses
from tests.integration.projection.conftest import Shop, lived
from tests.integration.projection.processes import until
from tests.integration.projection.shop_log import order_life

pytestmark = pytest.mark.long

ORDER, SKU = "order-9-7", "sku-9-1"
PLAIN = {"Accept-Encoding": "identity"}


@pytest.fixture
async def settings(shop: Shop) -> QuerySettings:
    await lived(shop, 9, 120)
    return QuerySettings(
        kafka=shop.kafka, database_url=shop.database_url, wait_seconds=0.01, max_wait_seconds=0.02
    )


@pytest.fixture
async def api(settings: QuerySettings) -> AsyncIterator[httpx.AsyncClient]:
    app = query_app(settings)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://query") as client,
    ):
        yield client


async def test_no_response_to_a_read_contradicts_the_document(settings: QuerySettings) -> None:
    def search() -> dict[str, set[int]]:
        with started(query_app(settings)) as schema:
            return statuses(schema, {"order_id": ORDER, "sku": SKU})

    by_operation = await asyncio.to_thread(search)
    assert len(by_operation) == 8
    for operation, seen in by_operation.items():
        invalid = set() if operation == "GET /projections" else {422}  # it has no parameters
        assert seen >= {200, *invalid} | ({404} if "{" in operation else set()), operation


async def test_head_is_get_without_its_body(api: httpx.AsyncClient) -> None:
    paths = ["/orders", f"/orders/{ORDER}", f"/orders/{ORDER}/history", "/stock", f"/stock/{SKU}"]
    paths += ["/sales/daily", "/conversations/stuck", "/projections", "/health/live", "/", "/openapi.json"]
    paths += ["/orders/none", "/orders?limit=0"]
    for path in paths:
        for headers in ({}, PLAIN):
            get, head = await api.get(path, headers=headers), await api.head(path, headers=headers)
            assert (head.status_code, head.content) == (get.status_code, b""), path
            for name in ("content-type", "etag", "vary", "content-encoding", "daybook-site"):
                assert head.headers.get(name) == get.headers.get(name), path
            if path != "/projections":  # its lag changes
                assert head.headers["content-length"] == get.headers["content-length"], path


async def test_who_has_the_version_gets_no_body(api: httpx.AsyncClient) -> None:
    for path in (f"/orders/{ORDER}", f"/stock/{SKU}", f"/orders/{ORDER}?at=version:1"):
        tag = (await api.get(path)).headers["etag"]
        for held in (tag, f"W/{tag}", "*", f'"0", {tag}'):
            for method in ("GET", "HEAD"):
                unchanged = await api.request(method, path, headers={"If-None-Match": held})
                assert (unchanged.status_code, unchanged.content) == (304, b"")
                assert (unchanged.headers["etag"], unchanged.headers["daybook-site"]) == (tag, "home")
                assert "content-type" not in unchanged.headers
        for other in ('"0"', "nonsense"):
            assert (await api.get(path, headers={"If-None-Match": other})).status_code == 200


async def test_pages_are_compressed_and_entities_are_not(shop: Shop, api: httpx.AsyncClient) -> None:
    for path in ("/orders?limit=100", "/stock", "/sales/daily"):
        small, plain = await api.get(path), await api.get(path, headers=PLAIN)
        assert (small.headers["content-encoding"], small.headers["vary"]) == ("gzip", "Accept-Encoding")
        assert int(small.headers["content-length"]) < len(plain.content) / 3
        assert ("content-encoding" in plain.headers, plain.headers["vary"]) == (False, "Accept-Encoding")
        assert small.json() == plain.json()
    short = await api.get("/orders?limit=1")
    assert "content-encoding" not in short.headers, "too small to gain anything"
    placed = order_life("large", random.Random(11))[0]
    shop.writer.write([replace(placed, body=replace(placed.body, lines=placed.body.lines * 50))])

    async def there() -> bool:
        return (await api.get("/orders/large")).status_code == 200

    await until(there, "the order was not applied")
    large = await api.get("/orders/large")
    assert (len(large.content) > 5000, large.headers["etag"]) == (True, '"1"')
    assert "content-encoding" not in large.headers, "other bytes under the same strong tag"


async def test_what_is_stale_is_not_kept_by_a_cache(shop: Shop, api: httpx.AsyncClient) -> None:
    victim = order_life("victim", random.Random(11))
    shop.writer.write(victim[:1])
    shop.writer.write_raw("order.events", victim[1].metadata, b"junk")

    async def parked() -> bool:
        return "daybook-stale" in (await api.get("/orders/victim")).headers

    await until(parked, "the order was not parked")
    for path in ("/orders/victim", "/orders", "/orders/victim/history", "/sales/daily"):
        response = await api.get(path, headers={"If-None-Match": "*"})
        assert (response.status_code, response.headers["cache-control"]) == (200, "no-store"), path
        assert response.json()["stale"] == "parked"
    then = await api.get("/orders/victim?at=version:1")
    assert ("cache-control" in then.headers, then.json()["stale"]) == (False, None)
    assert "cache-control" not in (await api.get(f"/orders/{ORDER}")).headers
