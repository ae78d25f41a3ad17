"""Idempotency keys, command ids and generated ids belong to the principal that sends them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from contracts.kernel.records import Outcome
from infra.lab.load.clients import subject_of
from services.edge.app import application
from services.edge.middleware import CorrelationMiddleware
from services.edge.problems import Unavailable
from services.edge.writes import Resource, Writer, command_id, entity_of_key
from services.kernel.record.envelope import UNAUTHENTICATED, AuthContext, Metadata
from services.kernel.worker.entities import NO_VERSION
from services.order.api import OrderApi, OrderApiSettings, routes
from tests.unit.api.access_tokens import AUDIENCE, EC, ISSUER, public, token
from tests.unit.api.in_process import AppResponse, send_request

ALICE, BOB = "c-5f1e8a52", "d-5f1e8a52"
KEY = "4711"
BODY = b'{"country": "France", "currency": "EUR", "lines": [{"sku": "A", "quantity": 1, "unit_price": "1"}]}'


@dataclass
class Gateway:
    """Keeps every request. `executed`: the outcomes of commands from before the upgrade, by id."""

    executed: dict[str, str] = field(default_factory=dict)
    requests: list[Metadata] = field(default_factory=list)
    epoch = 1

    async def send(self, command: Any, request: Metadata) -> Outcome:
        self.requests.append(request)
        kind = self.executed.get(request.id, "")
        replayed = bool(kind)
        if not kind:
            kind = "conflict" if request.expected_version == NO_VERSION else "accepted"
        about = {
            "command_id": request.id,
            "command_type": command.TYPE,
            "subject": request.subject,
            "tag": "",
        }
        rest: Any = {
            "version": 1,
            "event_ids": ("e",),
            "status": "placed",
            "code": "",
            "reason": "",
            "epoch": 1,
        }
        return Outcome(
            **about, kind=cast(Any, kind), **rest, request_hash=request.request_hash, replayed=replayed
        )


class Tail:
    async def watch(self, _: str) -> None:
        return None


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "jwks.json").write_text(public(EC))
    monkeypatch.setenv("DAYBOOK_TOKEN_KEYS", str(tmp_path / "jwks.json"))
    monkeypatch.setenv("DAYBOOK_TOKEN_ISSUER", ISSUER)
    monkeypatch.setenv("DAYBOOK_TOKEN_AUDIENCE", AUDIENCE)
    yield


async def send_order(gateway: Gateway, *of_order: Any, **more: Any) -> int:
    return (await response_to_order(gateway, *of_order, **more)).status


async def response_to_order(
    gateway: Gateway, subject: str = ALICE, key: str = KEY, body: bytes = BODY, hours: float = 24.0
) -> AppResponse:
    resource = Resource("order", "order_id", "/orders/")
    writer = Writer(cast(Any, gateway), resource, b"a key for tests", None, hours)
    settings = OrderApiSettings(hash_key=cast(Any, "a key for tests alone"))
    app = application([routes(OrderApi(writer, cast(Any, Tail()), settings))], lambda: None)
    app.add_middleware(CorrelationMiddleware)
    headers = [("Authorization", f"Bearer {token(sub=subject, scope='orders:place')}")] if subject else []
    headers += [("Idempotency-Key", key)] if key else []
    return await send_request(app, "POST", "/orders", "", headers, body)


def test_ids_are_a_wire_format() -> None:
    assert command_id("536365", KEY) == "bdfbaa85-5bbc-5c03-bff4-4270d94b8d9e"
    assert entity_of_key(KEY) == "12907525-bbb1-5132-80d3-886b716f19e5"
    assert command_id("536365", KEY, ALICE) == "911b301d-fa15-5260-a393-5f2764c3ea7d"
    assert entity_of_key(KEY, ALICE) == "ed6909f0-894d-536c-8b22-9cfb32540b2e"
    assert len({command_id("536365", KEY, who) for who in ("", ALICE, BOB)}) == 3


async def test_two_principals_with_one_key_get_orders_of_their_own() -> None:
    gateway = Gateway()
    assert await send_order(gateway, ALICE, hours=0) == await send_order(gateway, BOB, hours=0) == 201
    first, second = gateway.requests
    assert first.auth == AuthContext("user", ALICE)
    assert (first.subject, first.id) == (entity_of_key(KEY, ALICE), command_id(first.subject, KEY, ALICE))
    assert (second.subject, second.id) == (entity_of_key(KEY, BOB), command_id(second.subject, KEY, BOB))
    assert {request.former_id for request in gateway.requests} == {""}


async def test_without_tokens_ids_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAYBOOK_TOKEN_KEYS")
    gateway = Gateway()
    assert await send_order(gateway, "") == 201
    (request,) = gateway.requests
    assert (request.subject, request.id) == (entity_of_key(KEY), command_id(entity_of_key(KEY), KEY))
    assert (request.auth, request.former_id) == (UNAUTHENTICATED, "")


@pytest.mark.parametrize("kind", ["accepted", "refused"])
async def test_an_order_from_before_the_upgrade_is_not_placed_again(kind: str) -> None:
    former = entity_of_key(KEY)
    gateway = Gateway({command_id(former, KEY): kind})
    await send_order(gateway)
    probe, request = gateway.requests
    assert (probe.id, probe.expected_version) == (command_id(former, KEY), NO_VERSION)
    assert (request.subject, request.former_id) == (former, command_id(former, KEY))
    assert request.id == command_id(former, KEY, ALICE)


@pytest.mark.parametrize("executed", [{}, {command_id(entity_of_key(KEY), KEY): "conflict"}])
async def test_a_new_order_closes_its_former_id(executed: dict[str, str]) -> None:
    """The probe matches no version: what an API of the version before may still send gets a conflict."""
    gateway = Gateway(executed)
    assert await send_order(gateway) == 201
    probe, request = gateway.requests
    assert (probe.subject, probe.id) == (entity_of_key(KEY), command_id(entity_of_key(KEY), KEY))
    assert probe.request_hash == request.request_hash
    assert request.subject == entity_of_key(KEY, ALICE)


async def test_no_outcome_of_the_former_id_names_the_order_that_a_repeat_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unavailable(*_: object) -> Outcome:
        raise Unavailable("no outcome came")

    monkeypatch.setattr(Gateway, "send", unavailable)
    refused = await response_to_order(Gateway())
    assert (refused.status, json.loads(refused.body)["order_id"]) == (503, entity_of_key(KEY, ALICE))


async def test_only_what_may_be_a_repeat_looks_back() -> None:
    gateway = Gateway()
    await send_order(gateway, key="")
    await send_order(gateway, hours=0)
    assert [request.former_id for request in gateway.requests] == ["", ""]
    named = BODY.replace(b"{", b'{"order_id": "536365", ', 1)
    await send_order(gateway, body=named)
    assert (len(gateway.requests), gateway.requests[-1].former_id) == (3, command_id("536365", KEY))


def test_the_load_generator_knows_whose_command_it_sends() -> None:
    assert subject_of(f"Bearer {token(sub=BOB)}") == BOB
    assert subject_of("") == subject_of("Basic YWxpY2U6c2VjcmV0") == ""
