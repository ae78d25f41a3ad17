"""Refused requests are logged: who, which route, which code; never a token, a key, a body or an id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from services.edge.app import api_router, application
from services.edge.identity import scopes
from services.edge.middleware import CorrelationMiddleware
from services.edge.problems import Problem
from services.edge.writes import Resource, Writer
from services.inventory.api import StockApi, routes
from services.projection.reads import ReadRoute
from tests.unit.api.access_tokens import AUDIENCE, EC, ISSUER, public, token
from tests.unit.api.in_process import send_request

SUBJECT, KEY, SKU = "c-5f1e8a52", "a-secret-key", "85123A"
BODY = b'{"quantity": 1, "reference": "a body"}'
RECEIPTS = "/stock/{sku}/receipts"


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "jwks.json").write_text(public(EC))
    monkeypatch.setenv("DAYBOOK_TOKEN_KEYS", str(tmp_path / "jwks.json"))
    monkeypatch.setenv("DAYBOOK_TOKEN_ISSUER", ISSUER)
    monkeypatch.setenv("DAYBOOK_TOKEN_AUDIENCE", AUDIENCE)
    yield


async def refused(method: str, path: str, bearer: str) -> tuple[int, list[dict[str, Any]]]:
    """The status, and what was logged about it."""
    reads = api_router("orders", route_class=ReadRoute, dependencies=[scopes("orders:read")])

    @reads.get("/orders/{order_id}", summary="One order")
    async def get_order(order_id: str) -> dict[str, str]:
        status = {"limited": 429, "foreign": 404, "invalid": 422}[order_id]
        raise Problem(status, "too_many_requests" if status == 429 else "order_not_found", f"not {order_id}")

    writer = Writer(cast(Any, None), Resource("stock", "sku", "/stock/"), b"a key for tests")
    app = application([routes(StockApi(writer)), reads], lambda: None)
    app.add_middleware(CorrelationMiddleware)
    headers = [("Idempotency-Key", KEY)] + ([("Authorization", f"Bearer {bearer}")] if bearer else [])
    with capture_logs() as lines:
        response = await send_request(app, method, path, "", headers, BODY if method == "POST" else b"")
    logged = [line for line in lines if line["event"] == "request_refused"]
    text = json.dumps(lines, default=str)
    assert not any(secret in text for secret in (KEY, "a body", SKU, "foreign", bearer or "Bearer"))
    return response.status, [
        {name: line[name] for name in ("principal", "method", "route", "status", "code")} for line in logged
    ]


@pytest.mark.parametrize(
    ("method", "path", "bearer", "logged"),
    [
        ("POST", f"/stock/{SKU}/receipts", "", ("", RECEIPTS, 401, "token_missing")),
        ("POST", f"/stock/{SKU}/receipts", "x.y.z", ("", RECEIPTS, 401, "token_invalid")),
        ("POST", f"/stock/{SKU}/receipts", "orders:read", (SUBJECT, RECEIPTS, 403, "insufficient_scope")),
        ("GET", "/orders/foreign", "orders:read", (SUBJECT, "/orders/{order_id}", 404, "order_not_found")),
        ("GET", "/orders/limited", "orders:read", (SUBJECT, "/orders/{order_id}", 429, "too_many_requests")),
    ],
)
async def test_who_was_refused_is_logged(
    method: str, path: str, bearer: str, logged: tuple[str, str, int, str]
) -> None:
    given = token(sub=SUBJECT, scope=bearer) if ":" in bearer else bearer
    principal, route, status, code = logged
    about = {"principal": principal, "method": method, "route": route, "status": status, "code": code}
    assert await refused(method, path, given) == (status, [about])


async def test_what_is_wrong_with_a_request_is_not_logged() -> None:
    assert await refused("GET", "/orders/invalid", token(sub=SUBJECT)) == (422, [])
