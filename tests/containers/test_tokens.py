"""Who calls the APIs in containers: nobody without a token, and a customer for their own orders alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from infra.lab.load.clients import Api
from infra.lab.load.shop import api_urls
from tests.containers.shop import ContainerShop

pytestmark = pytest.mark.timeout(600)
ORDER = {"country": "France", "currency": "EUR", "lines": [{"sku": "x", "quantity": 1, "unit_price": "1.00"}]}
CUSTOMER = ("orders:place", "orders:read")


def routes(shop: ContainerShop) -> Iterator[tuple[str, str]]:
    urls = api_urls(shop.settings)
    yield "POST", f"{urls[Api.ORDER]}/orders"
    yield "POST", f"{urls[Api.INVENTORY]}/stock/x/receipts"
    yield "GET", f"{urls[Api.QUERY]}/orders"
    yield "GET", f"{shop.settings.url('registry')}/subjects"


def client(shop: ContainerShop, name: str, *scopes: str) -> httpx.Client:
    """As somebody with a token of `./daybook --stack compose token`."""
    options = [option for scope in scopes for option in ("--scope", scope)]
    issued = re.search(r"^ey[\w.-]+$", shop.run("token", name, *options), re.MULTILINE)
    assert issued is not None
    return httpx.Client(headers={"Authorization": f"Bearer {issued[0]}"}, trust_env=False, timeout=60)


def test_nobody_calls_without_a_token(shop: ContainerShop) -> None:
    with httpx.Client(trust_env=False, timeout=60) as anonymous:
        for method, url in routes(shop):
            response = anonymous.request(method, url)
            assert (response.status_code, response.json()["code"]) == (401, "token_missing"), url
            assert response.headers["WWW-Authenticate"] == 'Bearer realm="daybook"'


def test_a_token_of_another_issuer_or_without_the_scope_is_refused(shop: ContainerShop) -> None:
    with client(shop, "nobody") as powerless:
        for method, url in routes(shop):
            response = powerless.request(method, url)
            assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope"), url
            assert 'error="insufficient_scope"' in response.headers["WWW-Authenticate"]
            header = powerless.headers["Authorization"]
            strange = powerless.request(method, url, headers={"Authorization": f"{header[:-4]}AAAA"})
            assert (strange.status_code, strange.json()["code"]) == (401, "token_invalid"), url


def test_a_customer_orders_and_sees_no_foreign_order(shop: ContainerShop) -> None:
    urls = api_urls(shop.settings)
    with ExitStack() as stack:
        alice, bob = (stack.enter_context(client(shop, name, *CUSTOMER)) for name in ("alice", "bob"))
        placed = alice.post(f"{urls[Api.ORDER]}/orders", json=ORDER)
        assert placed.status_code == 201
        order = placed.json()["order_id"]
        seen = {"Consistency-Token": placed.headers["Consistency-Token"]}
        for url in (f"{urls[Api.QUERY]}/orders/{order}", f"{urls[Api.QUERY]}/orders/{order}/history"):
            assert alice.get(url, headers=seen).status_code == 200
            assert bob.get(url).status_code == 404
        cancellation = f"{urls[Api.ORDER]}/orders/{order}/cancellation"
        assert bob.post(cancellation, json={"reason": "not mine"}).status_code == 404


def test_schemas_are_read_with_a_token(shop: ContainerShop) -> None:
    with client(shop, "reader", "ops:read") as reader:
        subjects = reader.get(f"{shop.settings.url('registry')}/subjects")
    assert subjects.status_code == 200
    assert "order.events-daybook.order.OrderPlaced" in subjects.json()
