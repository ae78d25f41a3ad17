"""A customer changes orders of their own, and for nobody else's learns even that they exist."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from infra.lab.load.clients import Api
from infra.lab.load.shop import api_urls
from infra.stack.tokens import issuer_of
from tests.e2e.shop import Shop

pytestmark = pytest.mark.long

LINE = {"sku": "own-1", "quantity": 1, "unit_price": "7.50"}
ORDER = {"country": "Portugal", "currency": "EUR", "lines": [LINE]}


def as_customer(shop: Shop, name: str) -> httpx.Client:
    token = issuer_of(shop.settings).token(name, ["orders:place", "orders:read"], 1)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(
        base_url=api_urls(shop.settings)[Api.ORDER], headers=headers, timeout=60, trust_env=False
    )


def cancelled(
    client: httpx.Client, order_id: str, key: str = "", reason: str = "mine"
) -> tuple[int, dict[str, Any]]:
    headers = {"Idempotency-Key": key or str(uuid4())}
    response = client.post(f"/orders/{order_id}/cancellation", json={"reason": reason}, headers=headers)
    body = response.json()
    return response.status_code, {
        name: value for name, value in body.items() if name not in ("order_id", "command_id")
    }


@pytest.mark.timeout(600)
def test_only_the_customer_of_an_order_cancels_it(shop: Shop) -> None:
    own, unknown, urls = f"own-{uuid4()}", f"unknown-{uuid4()}", api_urls(shop.settings)
    delivery = f"{urls[Api.INVENTORY]}/stock/{LINE['sku']}/receipts"
    body = {"quantity": 1, "reference": "delivery 1"}
    assert httpx.post(delivery, json=body, auth=urls.caller, timeout=60, trust_env=False).status_code == 200
    with as_customer(shop, "alice") as alice, as_customer(shop, "bob") as bob:
        assert alice.post("/orders", json=ORDER | {"order_id": own}).status_code == 201
        refused = cancelled(bob, own, "one-key")
        assert refused == cancelled(bob, unknown)
        assert (refused[0], refused[1]["code"]) == (404, "order_not_found")
        taken = bob.post("/orders", json=ORDER | {"order_id": own}).json()
        assert (taken["code"], taken["version"]) == ("order_exists", 0), "the id is in use, and no more"
        for order in (own, unknown):
            guessed = bob.post("/orders", json=ORDER | {"order_id": order}, headers={"If-Match": '"9"'})
            assert (guessed.status_code, guessed.json()["field"]) == (422, "If-Match")
            assert cancelled(bob, order, "one-key") == refused
            again = cancelled(bob, order, "one-key", "another body")
            assert (again[0], again[1]["code"], again[1]["version"]) == (422, "idempotency_key_reused", 0)
        assert cancelled(alice, own, "two-keys")[0] == 200
        # his key is not hers, so what was recorded for her is not returned
        assert cancelled(bob, own, "two-keys") == refused
        assert cancelled(bob, own) == refused


@pytest.mark.timeout(600)
def test_nobody_changes_an_order_without_a_token(shop: Shop) -> None:
    urls = api_urls(shop.settings)
    anonymous = httpx.post(f"{urls[Api.ORDER]}/orders", json=ORDER, timeout=60, trust_env=False)
    assert (anonymous.status_code, anonymous.json()["code"]) == (401, "token_missing")
    assert anonymous.headers["WWW-Authenticate"] == 'Bearer realm="daybook"'
    for path in ("/orders", "/stock", "/projections"):
        read = httpx.get(f"{urls[Api.QUERY]}{path}", timeout=60, trust_env=False)
        assert read.status_code == 401
