"""A customer reads the orders of the token's subject, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from services.kernel.record.envelope import Token
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, running, until
from tests.integration.projection.shop_log import history
from tests.unit.api.access_tokens import AUDIENCE, EC, ISSUER, bearer, public, token

ORDERS = 120
EPOCH = 1000  # later than all of the log


@asynccontextmanager
async def query_api(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    """The query API; it verifies tokens, and lets one customer send many requests."""
    keys = shop.folder / "jwks.json"
    keys.write_text(public(EC))
    tokens = {"token_keys": str(keys), "token_issuer": ISSUER, "token_audience": AUDIENCE}
    settings = {**tokens, "requests_per_second": "0"}
    with running("query", shop.kafka, shop.database_url, shop.folder / "query.log", **settings) as query:
        await query.ready()
        async with httpx.AsyncClient(base_url=query.url, timeout=60) as client:
            yield client


def as_customer(subject: str) -> dict[str, str]:
    return dict(bearer(token(sub=subject, scope="orders:read")))


def as_staff() -> dict[str, str]:
    """Not made when the module is imported: a long run would outlive it."""
    return dict(bearer(token(sub="staff", scope="orders:read.all")))


async def test_another_customers_orders_do_not_exist(shop: Shop) -> None:
    events = history(8, ORDERS)
    shop.writer.write_all(events, 50)
    await until(lambda: applied(shop.connection, events), "not all events were applied")
    async with query_api(shop) as api:
        page = (await api.get("/orders", params={"limit": 500}, headers=as_staff())).json()
        owners = {order["order_id"]: order["customer_id"] for order in page["orders"]}
        versions = {order["order_id"]: order["version"] for order in page["orders"]}
        assert len(owners) == ORDERS
        customers = sorted({owner for owner in owners.values() if owner})
        assert len(customers) > 1
        assert (await api.get("/orders")).status_code == 401
        for customer in customers[:3]:
            await one_customer(api, customer, owners)
        await a_token_of_another_customers_order(api, customers[0], owners, versions)


async def a_token_of_another_customers_order(
    api: httpx.AsyncClient, customer: str, owners: dict[str, str | None], versions: dict[str, int]
) -> None:
    """It tells neither that the order exists, nor whether its stream is forked or behind."""
    foreign = next(order for order, owner in owners.items() if owner != customer)
    own = next(order for order, owner in owners.items() if owner == customer)
    for order, headers, expected in (
        (foreign, as_customer(customer), {503: "not_yet_visible"}),
        (f"{foreign}-missing", as_customer(customer), {503: "not_yet_visible"}),
        (own, as_customer(customer), {503: "stream_forked"}),
        (foreign, as_staff(), {503: "stream_forked"}),
    ):
        version = versions.get(order, versions[foreign])
        forked = Token(f"order/{order}", version, "another", EPOCH).encode()
        beyond = Token(f"order/{order}", version + 1, "another", EPOCH).encode()
        for path in (f"/orders/{order}", f"/orders/{order}/history"):
            response = await api.get(
                path, headers={**headers, "Consistency-Token": forked}, params={"wait": "300ms"}
            )
            assert {response.status_code: response.json()["code"]} == expected, response.text
            late = {**headers, "Consistency-Token": beyond}
            response = await api.get(path, headers=late, params={"wait": "0s"})
            assert response.status_code == next(iter(expected)), response.text
    token_ = Token(f"order/{foreign}", versions[foreign], "another", EPOCH).encode()
    unknown = Token(f"order/{foreign}-missing", versions[foreign], "another", EPOCH).encode()
    for one_token in (token_, unknown):
        headers = {**as_customer(customer), "Consistency-Token": one_token}
        listed = await api.get("/orders", headers=headers, params={"wait": "0s"})
        assert (listed.status_code, listed.json()["code"]) == (503, "not_yet_visible")
    everybody = await api.get("/orders", params={"customer_id": ""}, headers=as_staff())
    assert everybody.json()["orders"] == [], "nobody's orders, not everybody's"


async def one_customer(api: httpx.AsyncClient, customer: str, owners: dict[str, str | None]) -> None:
    headers = as_customer(customer)
    own = {order for order, owner in owners.items() if owner == customer}
    listed = (await api.get("/orders", params={"limit": 500}, headers=headers)).json()["orders"]
    assert {order["order_id"] for order in listed} == own
    other = await api.get("/orders", params={"customer_id": "another"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (403, "insufficient_scope")
    for order, owner in owners.items():
        missing = (await api.get(f"/orders/{order}-missing", headers=headers)).json()["detail"]
        for path in ("", "?at=version:1", "/history", "/history?cursor=MQ"):
            response = await api.get(f"/orders/{order}{path}", headers=headers)
            if owner == customer:
                assert response.status_code in ((200, 404) if "cursor" in path else (200,)), response.text
            else:
                assert (response.status_code, response.json()["code"]) == (404, "order_not_found")
        if owner != customer:
            detail = (await api.get(f"/orders/{order}", headers=headers)).json()["detail"]
            assert detail == missing.replace(f"{order}-missing", order)
