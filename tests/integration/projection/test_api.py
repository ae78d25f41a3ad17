"""The query API on real tables, as a client sees it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from services.kernel.record.envelope import Token, format_time
from services.projection.read_models import READ_MODELS
from services.projection.reads import to_cursor
from tests.integration.projection.bad_records import Planted, life
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, running, until
from tests.integration.projection.shop_log import Event, envelope, history, order_life, stock_life
from tests.postgres_server import create_tables_of_shop


@pytest.fixture
async def api(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    with running("query", shop.kafka, shop.database_url, shop.folder / "query.log") as query:
        await query.ready()
        async with httpx.AsyncClient(base_url=query.url, timeout=60) as client:
            yield client


def token(event: Event, **changed: object) -> dict[str, str]:
    metadata = event.metadata
    kind = "order" if event.body.TYPE.startswith("daybook.order.") else "stock"
    made = Token(f"{kind}/{metadata.subject}", metadata.version, metadata.id, metadata.epoch)
    return {"Consistency-Token": made._replace(**changed).encode()}  # type: ignore[arg-type]


async def test_the_routes(shop: Shop, api: httpx.AsyncClient) -> None:
    events = history(8, 120)
    shop.writer.write_all(events, 50)
    await until(lambda: applied(shop.connection, events), "not all events were applied")
    await pages_hold_every_order_once(api)
    life = [event for event in events if event.metadata.subject == "order-8-7"]
    await one_order_now_and_then(api, life)

    scarce = (await api.get("/stock", params={"below": 990, "limit": 3})).json()
    assert scarce["stock"]
    assert all(row["available"] < 990 for row in scarce["stock"])
    sku = (await api.get(f"/stock/{scarce['stock'][0]['sku']}")).json()
    assert sku["available"] == sku["on_hand"] - sku["reserved"]

    days = (await api.get("/sales/daily", params={"from": "2010-12-01", "country": "France"})).json()["days"]
    assert days
    assert all(day["country"] == "France" and day["day"] >= "2010-12-01" for day in days)
    stuck = (await api.get("/conversations/stuck", params={"older_than": "0"})).json()["conversations"]
    assert stuck
    assert all(row["awaits"] for row in stuck)
    assert not (await api.get("/conversations/stuck", params={"older_than": "1000"})).json()["conversations"]
    names = {row["read_model"] for row in (await api.get("/projections")).json()["projections"]}
    assert names == {model.name for model in READ_MODELS}
    assert (await api.get("/docs")).status_code == 200
    assert "/orders/{order_id}" in (await api.get("/openapi.json")).json()["paths"]


async def pages_hold_every_order_once(api: httpx.AsyncClient) -> None:
    seen: list[tuple[str, str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get("/orders", params={"limit": "50", **cursor})).json()
        seen += [(order["placed_at"], order["order_id"]) for order in page["orders"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert len(seen) == len(set(seen)) == 120
    assert seen == sorted(seen, reverse=True)
    shipped = (await api.get("/orders", params={"status": "shipped", "customer_id": "c-1"})).json()["orders"]
    assert shipped
    assert {(order["status"], order["customer_id"]) for order in shipped} == {("shipped", "c-1")}


async def one_order_now_and_then(api: httpx.AsyncClient, life: list[Event]) -> None:
    path = f"/orders/{life[0].metadata.subject}"
    now = await api.get(path)
    assert now.headers["etag"] == f'"{len(life)}"'
    trail = (await api.get(f"{path}/history", params={"limit": "2"})).json()
    assert [event["version"] for event in trail["events"]] == [1, 2]
    assert trail["events"][0]["body"]["occurred_at"].endswith("Z")
    rest = (await api.get(f"{path}/history", params={"cursor": trail["next"]})).json()
    assert [event["version"] for event in rest["events"]] == list(range(3, len(life) + 1))
    first = await api.get(path, params={"at": "version:1"})
    assert (first.json()["status"], first.headers["etag"]) == ("placed", '"1"')
    assert (await api.get(path, params={"at": f"version:{len(life)}"})).json() == now.json()
    recorded_at = format_time(life[1].metadata.recorded_at)
    assert (await api.get(path, params={"at": recorded_at})).json()["version"] == 2
    for beyond in (99, 10**18 - 1):
        missing = await api.get(path, params={"at": f"version:{beyond}"})
        assert missing.json()["code"] == "order_not_found"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/orders?limit=0", "limit"),
        ("/orders?limit=ten", "limit"),
        ("/orders?status=lost", "status"),
        ("/orders?from=yesterday", "from"),
        ("/orders?cursor=bm90aGluZw", "cursor"),
        ("/orders?colour=red", "colour"),
        ("/orders?limit=1&limit=2", "limit"),
        ("/orders/o-1?at=version:0", "at"),
        ("/orders/o-1?at=2010-12-01T08:00:00", "at"),
        ("/orders/o-1?wait=soon", "wait"),
        ("/stock?below=1.5", "below"),
        ("/sales/daily?to=2010-13-01", "to"),
        ("/conversations/stuck?older_than=-1", "older_than"),
        ("/orders/%00", "order_id"),
        ("/orders/%00/history", "order_id"),
        ("/stock/a%00", "sku"),
        ("/orders?country=%00", "country"),
        (f"/orders?cursor={to_cursor((2**70, 'o-1'))}", "cursor"),
        (f"/stock?cursor={to_cursor((1, chr(0)))}", "cursor"),
        (f"/orders/o-1/history?cursor={to_cursor(2**70)}", "cursor"),
        (f"/orders/o-1?at=version:{'9' * 5000}", "at"),
    ],
)
async def test_a_wrong_parameter_is_named(parameters_api: httpx.AsyncClient, path: str, field: str) -> None:
    response = await parameters_api.get(path)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["field"] == field


@pytest.mark.parametrize("token", [Token("order/o-1", 2**70, "", 1), Token("order/o-1", 1, "", 2**31)])
async def test_a_token_of_no_writer_is_refused(parameters_api: httpx.AsyncClient, token: Token) -> None:
    response = await parameters_api.get("/orders/o-1", headers={"Consistency-Token": token.encode()})
    assert (response.status_code, response.json()["field"]) == (422, "Consistency-Token")


@pytest.mark.parametrize(
    "path",
    [
        f"/orders?cursor={to_cursor((2**53, 'o-1'))}",
        f"/orders?cursor={to_cursor((-(2**53), 'o-1'))}",
        f"/stock?cursor={to_cursor((-(2**53), 'a'))}",
        f"/sales/daily?cursor={to_cursor(('0001-01-01', '', ''))}",
        f"/conversations/stuck?cursor={to_cursor((2**53, ''))}&older_than=999999999",
        "/orders?from=0001-01-01T00:00:00%2B14:00&to=9999-12-31T23:59:59-14:00",
        "/sales/daily?from=0001-01-01&to=9999-12-31",
        f"/orders/o-1/history?cursor={to_cursor(2**53)}",
    ],
)
async def test_what_is_far_away_is_an_empty_page_or_a_full_one(
    parameters_api: httpx.AsyncClient, path: str
) -> None:
    assert (await parameters_api.get(path)).status_code == 200


async def test_a_token_waits_for_its_write(shop: Shop, api: httpx.AsyncClient) -> None:
    life = order_life("mine", random.Random(11))
    reading = asyncio.create_task(api.get("/orders/mine", headers=token(life[-1]), params={"wait": "20"}))
    await asyncio.sleep(0.5)
    assert not reading.done()
    shop.writer.write(life)
    begun = time.monotonic()
    response = await reading
    assert response.json()["version"] == len(life)
    assert time.monotonic() - begun < 10
    for path in ("/orders/mine/history", "/sales/daily", "/conversations/stuck", "/orders?status=shipped"):
        assert (await api.get(path, headers=token(life[-1]))).status_code == 200


async def test_what_has_not_arrived_is_not_shown(shop: Shop, api: httpx.AsyncClient) -> None:
    life = order_life("late", random.Random(11))
    shop.writer.write(life[:1])
    assert (await api.get("/orders/late", headers=token(life[0]), params={"wait": "10"})).status_code == 200
    begun = time.monotonic()
    response = await api.get("/orders/late", headers=token(life[1]), params={"wait": "300ms"})
    assert 0.3 <= time.monotonic() - begun < 2
    assert (response.status_code, response.json()["code"]) == (503, "not_yet_visible")
    assert int(response.headers["retry-after"]) >= 1
    response = await api.get("/orders/late", headers={"Consistency-Token": "nonsense"})
    assert (response.status_code, response.json()["field"]) == (422, "Consistency-Token")


async def test_a_write_that_was_lost_in_a_failover_is_reported_as_lost(
    shop: Shop, api: httpx.AsyncClient
) -> None:
    sku = stock_life("sku-1", random.Random(1))
    mine, theirs = sku[:3], [envelope("sku-1", n, e.body, epoch=2) for n, e in enumerate(sku[2:6], start=3)]
    shop.writer.write(mine[:2])
    shop.writer.open_epoch(2)
    shop.writer.write(theirs)
    assert (
        await api.get("/stock/sku-1", headers=token(theirs[-1]), params={"wait": "10"})
    ).status_code == 200
    assert (await api.get("/stock/sku-1", headers=token(mine[1]))).status_code == 200
    for lost in (mine[2], sku[8]):  # written again by the new epoch; beyond the stream's end
        response = await api.get("/stock/sku-1", headers=token(lost), params={"wait": "5"})
        assert (response.status_code, response.json()["code"]) == (410, "lost_in_failover"), response.text
        assert response.headers["cache-control"] == "no-store"
    forged = {"event_id": "another"}
    response = await api.get("/stock/sku-1", headers=token(theirs[-1], **forged))
    assert (response.status_code, response.json()["code"]) == (503, "stream_forked"), (
        "no failover between them"
    )


async def test_without_a_failover_nothing_is_reported_as_lost(shop: Shop, api: httpx.AsyncClient) -> None:
    """A huge epoch opens nothing; an event that waits behind a fork is not lost, also after a failover."""
    planted = Planted(shop.writer)
    planted.plant("huge epoch", "forged next version")
    whole, forked = planted.lives["huge epoch"], planted.lives["forged next version"]
    quick = {"wait": "5"}
    order = f"/orders/{whole[0].metadata.subject}"
    for event in (whole[0], whole[-1]):
        assert (await api.get(order, headers=token(event), params=quick)).status_code == 200
    beyond = token(whole[-1], version=len(whole) + 1)
    assert (await api.get(order, headers=beyond, params={"wait": "0s"})).json()["code"] == "not_yet_visible"

    order = f"/orders/{forked[0].metadata.subject}"
    response = await api.get(order, headers=token(forked[2]), params=quick)
    assert (response.status_code, response.json()["code"]) == (503, "stream_forked"), response.text
    shop.writer.open_epoch(2)
    after = [replace(event, metadata=event.metadata._replace(epoch=2)) for event in life("order-later")]
    shop.writer.write(after)
    await until(lambda: applied(shop.connection, after), "the next epoch was not applied")
    response = await api.get(order, headers=token(forked[-1]), params={"wait": "0s"})
    assert response.status_code == 503, response.text


@pytest.fixture
async def parameters_api(fresh_database: str) -> AsyncIterator[httpx.AsyncClient]:
    """Runs the API in this process: the checks of parameters need no projection."""
    from services.projection.api import query_app
    from services.projection.engine.settings import QuerySettings

    create_tables_of_shop(fresh_database)
    app = query_app(QuerySettings(database_url=fresh_database))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://query") as client:
            yield client


async def test_a_token_beyond_the_end_of_a_promoted_site_is_lost(shop: Shop, api: httpx.AsyncClient) -> None:
    life = order_life("order-lost-1", random.Random(3))
    shop.writer.write_all(life[:2], 10)
    await until(lambda: applied(shop.connection, life[:2]), "not all events were applied")
    beyond = token(life[2])
    path, quick = "/orders/order-lost-1", {"wait": "0s"}
    assert (await api.get(path, params=quick, headers=beyond)).json()["code"] == "not_yet_visible"
    rows = await shop.connection.fetch(
        "SELECT topic, partition, next_offset FROM position WHERE read_model = 'orders'"
    )
    # not every mirrored record is applied yet: the token's event may be among them
    await shop.connection.executemany(
        "INSERT INTO promotion VALUES (2, $1, $2, $3 + 1)", [tuple(row) for row in rows]
    )
    assert (await api.get(path, params=quick, headers=beyond)).json()["code"] == "not_yet_visible"
    await shop.connection.execute("UPDATE promotion SET ends_at = ends_at - 1")
    assert (await api.get(path, params=quick, headers=beyond)).json()["code"] == "lost_in_failover"
    later = token(life[2], epoch=2)
    assert (await api.get(path, params=quick, headers=later)).json()["code"] == "not_yet_visible"
    assert (await api.get(path, params=quick, headers=token(life[1]))).status_code == 200


async def test_responses_name_their_site_and_how_old_they_may_be(shop: Shop, api: httpx.AsyncClient) -> None:
    alone = await api.get("/projections")
    assert alone.headers["daybook-site"] == "home"
    assert "daybook-role" not in alone.headers
    await shop.connection.execute("INSERT INTO site VALUES ('home', 'passive', 2, 7, 1.5, now())")

    async def headers_followed() -> bool:
        headers = (await api.get("/projections")).headers
        return headers.get("daybook-role") == "passive" and float(headers["daybook-lag-seconds"]) >= 1.5

    await until(headers_followed, "the headers did not follow")
