"""Our route class against FastAPI's own, and the wire formats that it must keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from contracts.kernel.records import Outcome
from services.edge.app import application
from services.edge.middleware import CorrelationMiddleware
from services.edge.requests import WriteRoute
from services.edge.writes import Resource, Writer
from services.inventory.api import StockApi
from services.inventory.api import routes as stock_routes
from services.kernel.record.envelope import Metadata
from services.order.api import OrderApi, OrderApiSettings
from services.order.api import routes as order_routes
from tests.unit.api.in_process import AppResponse, send_request

GOLDEN = Path(__file__).parents[2] / "contract" / "golden_requests.json"
KEY = b"a key for golden values"
REQUESTS = 10_000
LINE = {"sku": "85123A", "quantity": 6, "unit_price": "2.55"}
ORDER = {
    "order_id": "536365",
    "customer_id": "17850",
    "country": "United Kingdom",
    "currency": "GBP",
    "occurred_at": "2010-12-01T08:26:00Z",
    "lines": [LINE, LINE],
    "charges": [{"code": "POST", "amount": "18.00"}],
}
BODIES: dict[str, Any] = {
    "/orders": ORDER,
    "/orders/{}/cancellation": {"reason": "ordered twice", "occurred_at": "2011-01-01T00:00:00.5+05:30"},
    "/orders/{}/shipment": {"carrier": "Royal Mail", "reference": None},
    "/orders/{}/returns": {"lines": [{"sku": "71053", "quantity": 2}], "reason": "broken"},
    "/stock/{}/receipts": {"quantity": 144, "reference": "DN-20101201-7"},
    "/stock/{}/adjustments": {"quantity": -3, "reason": "broken"},
}
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 6.0, 2**63, 10**30, "", "x", "6", "2.55", "-1", "1e3", "a b", "é", "\x00",
    "x" * 300, [], {}, [[]], [None], {"sku": 1}, "2010-12-01", "2010-12-01T08:26:00", "1291191960",
    1291191960, "GBP", "gbp",
]  # fmt: skip
PATHS = ["536365", "85123A", "a%20b", "x" * 65, "%00", "-", "%C3%A9"]
QUERIES = ["", "", "", "", "wait=settled", "wait=soon", "wait=", "colour=red", "wait=settled&wait=settled"]
HEADERS: dict[str, list[str]] = {
    "Idempotency-Key": ["4711", "", "a b", "x" * 256, "\xe9"],
    "If-Match": ['"3"', "*", 'W/"3"', "3", '"3", "4"', '"x"'],
    "X-Correlation-Id": ["c-1", "a b"],
    "traceparent": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "nonsense"],
}


class Gateway:
    """Accepts every command; the outcome's status contains the command."""

    epoch = 1

    async def send(self, command: Any, request: Metadata) -> Outcome:
        self.request = request
        return Outcome(
            command_id=request.id,
            command_type=command.TYPE,
            subject=request.subject,
            tag="",
            kind="accepted",
            version=1,
            event_ids=("01940000-0000-7000-8000-000000000000",),
            status=f"{request.request_hash} {request.expected_version} {command!r}",
            code="",
            reason="",
            request_hash=request.request_hash,
            replayed=False,
        )


class Tail:
    async def watch(self, _: str) -> None:
        return None


def app(gateway: Gateway, route_class: type[APIRoute]) -> FastAPI:
    settings = OrderApiSettings(hash_key=cast(Any, "a key for tests alone"))
    orders = Writer(cast(Any, gateway), Resource("order", "order_id", "/orders/"), KEY)
    stock = Writer(cast(Any, gateway), Resource("stock", "sku", "/stock/"), KEY)
    made = application(
        [
            order_routes(OrderApi(orders, cast(Any, Tail()), settings), route_class),
            stock_routes(StockApi(stock), route_class),
        ],
        lambda: None,
    )
    made.add_middleware(CorrelationMiddleware)
    return made


def spoilt(random: Random, value: Any) -> Any:
    """The value with some of it replaced, removed or added."""
    if random.random() < 0.12:
        return random.choice(ODD)
    match value:
        case dict():
            kept = {name: spoilt(random, part) for name, part in value.items() if random.random() > 0.06}
            return {**kept, "colour": "red"} if random.random() < 0.05 else kept
        case list():
            return [spoilt(random, part) for part in value] * random.choice([1, 1, 1, 0])
        case _:
            return value


def generated(seed: int) -> Iterator[tuple[str, str, list[tuple[str, str]], bytes]]:
    """Path, query, headers and body."""
    random = Random(seed)
    for _ in range(REQUESTS):
        path = random.choice([*BODIES])
        body = BODIES[path] if random.random() < 0.3 else spoilt(random, BODIES[path])
        text = json.dumps(body, ensure_ascii=random.random() < 0.5)
        if random.random() < 0.05:
            text = text[: random.randint(1, len(text))]
        headers = [
            (name, random.choice(values)) for name, values in HEADERS.items() if random.random() < 0.25
        ]
        if headers and random.random() < 0.05:
            headers.append(headers[0])
        yield path.format(random.choice(PATHS)), random.choice(QUERIES), headers, text.encode()


def comparable(response: AppResponse) -> Any:
    """The response without the detail of malformed JSON, which two parsers describe differently."""
    body = json.loads(response.body)
    if body.get("code") == "malformed_json":
        del body["detail"]
    return response.status, body


async def test_fastapi_s_route_class_returns_the_same_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.edge.writes.uuid7", lambda: "minted")
    monkeypatch.setattr("services.order.api.now_micros", lambda: 1_800_000_000_000_000)
    monkeypatch.setattr("services.edge.writes.now_micros", lambda: 1_800_000_000_000_000)
    ours, plain = app(Gateway(), WriteRoute), app(Gateway(), APIRoute)
    statuses: set[tuple[int, str]] = set()
    for path, query, headers, body in generated(seed=16):
        if body.strip() == b"null":
            continue  # FastAPI takes it for no body at all
        mine = comparable(await send_request(ours, "POST", path, query, headers, body))
        theirs = comparable(await send_request(plain, "POST", path, query, headers, body))
        assert mine == theirs, (path, query, headers, body)
        statuses.add((mine[0], mine[1].get("code", "")))
    assert statuses >= {(200, ""), (201, ""), (422, "malformed_json"), (422, "unknown_parameter")}
    assert (422, "invalid_field") in statuses


@pytest.mark.parametrize("golden", json.loads(GOLDEN.read_text("utf-8")), ids=lambda golden: golden["path"])
async def test_fingerprints_and_command_ids_do_not_change(golden: SimpleNamespace) -> None:
    made = cast(dict[str, Any], golden)
    gateway = Gateway()
    headers = [("Idempotency-Key", made["key"])]
    headers += [("If-Match", made["if_match"])] if made["if_match"] else []
    response = await send_request(
        app(gateway, WriteRoute), "POST", made["path"], "", headers, made["body"].encode()
    )
    assert response.status in (200, 201), response.body
    assert gateway.request.request_hash == made["fingerprint"]
    assert gateway.request.id == made["command_id"]
