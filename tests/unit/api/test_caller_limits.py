"""How much one caller may ask for: requests per second, and commands in progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from services.edge import limits
from services.edge.identity import ANYONE, Identity, Principal
from services.edge.limits import Limits
from services.edge.problems import Problem
from services.edge.scopes import OF_CUSTOMERS, SCOPES
from services.edge.settings import LimitSettings, TokenSettings
from tests.unit.api.access_tokens import AUDIENCE, EC, ISSUER, app_of, bearer, public, token
from tests.unit.api.in_process import AppResponse, send_request

RATE = LimitSettings(requests_per_second=10, burst_seconds=0.5)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The query API verifies tokens, and allows a customer ten requests per second and five at once."""
    keys = tmp_path / "jwks.json"
    keys.write_text(public(EC))
    app = app_of("query")
    app.state.identity = Identity(
        TokenSettings(token_keys=str(keys), token_issuer=ISSUER, token_audience=AUDIENCE)
    )
    app.state.limits = Limits(RATE)
    monkeypatch.setattr(limits, "time", clock := Clock())
    monkeypatch.setattr(limits, "REFUSAL_SECONDS", (0.0, 0.0))
    yield clock
    app.state.limits = Limits(LimitSettings())


async def read(subject: str, scope: str = "orders:read", method: str = "GET") -> AppResponse:
    headers = bearer(token(sub=subject, scope=scope))
    return await send_request(app_of("query"), method, "/orders", "colour=red", headers)


async def test_a_customer_who_sends_too_much_waits_and_others_do_not(clock: Clock) -> None:
    headers = [dict((await read("alice")).headers) for _ in range(5)]
    assert [own[b"ratelimit"] for own in headers] == [
        b'"caller";r=4;t=1',
        b'"caller";r=3;t=1',
        b'"caller";r=2;t=1',
        b'"caller";r=1;t=1',
        b'"caller";r=0;t=1',
    ]
    assert {own[b"ratelimit-policy"] for own in headers} == {b'"caller";q=5;w=1'}
    refused = await read("alice")
    own = dict(refused.headers)
    assert (refused.status, json.loads(refused.body)["code"]) == (429, "rate_limited")
    assert (own[b"retry-after"], own[b"ratelimit"]) == (b"1", b'"caller";r=0;t=1')
    assert own[b"content-type"] == b"application/problem+json"
    assert (await read("bob")).status == 422
    clock.now += 0.11
    assert [(await read("alice")).status for _ in range(2)] == [422, 429]
    clock.now += 60
    assert [(await read("alice", method="HEAD")).status for _ in range(6)] == [422] * 5 + [429]


@pytest.mark.usefixtures("clock")
async def test_a_refusal_for_its_scope_counts_too() -> None:
    assert [(await read("alice", "orders:place")).status for _ in range(6)] == [403] * 5 + [429]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope not in OF_CUSTOMERS])
async def test_staff_has_no_limit_by_default(scope: str) -> None:
    responses = [await read("till", f"orders:read {scope}") for _ in range(20)]
    assert {response.status for response in responses} == {422}
    assert not any(name == b"ratelimit" for response in responses for name, _ in response.headers)


@pytest.mark.usefixtures("clock")
async def test_staff_may_have_a_limit_of_its_own() -> None:
    app_of("query").state.limits = Limits(LimitSettings(staff_requests_per_second=2, burst_seconds=1))
    assert [(await read("till", "orders:read.all")).status for _ in range(3)] == [422, 422, 429]


@pytest.mark.usefixtures("clock")
async def test_no_limit_and_no_tokens() -> None:
    app_of("query").state.limits = Limits(LimitSettings(requests_per_second=0))
    assert {(await read("alice")).status for _ in range(200)} == {422}
    app_of("query").state.limits = Limits(LimitSettings(staff_requests_per_second=1))
    app_of("query").state.identity = Identity(TokenSettings())
    assert {(await read("anyone")).status for _ in range(20)} == {422}


@pytest.mark.usefixtures("clock")
async def test_only_so_many_callers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BUCKETS", 3)
    for name in ("alice", "bob", "carol", "dan"):
        await read(name)
    assert len(app_of("query").state.limits._buckets) <= 3


def customer(name: str) -> Principal:
    return Principal(name, "tests", OF_CUSTOMERS)


def most(shared: Limits, principal: Principal, stack: ExitStack) -> int:
    """How many commands more it can have in progress, up to 100."""
    for number in range(100):
        try:
            stack.enter_context(shared.in_progress(principal))
        except Problem as refused:
            assert (refused.status, refused.code) == (429, "too_many_pending")
            assert refused.headers == {"Retry-After": "1"}
            return number
    return 100


def test_each_caller_leaves_as_much_as_it_has_itself() -> None:
    shared = Limits(RATE, max_pending=64)
    with ExitStack() as stack:
        assert [most(shared, customer(name), stack) for name in "abcdef"] == [32, 16, 8, 4, 2, 1]
        assert most(shared, customer("a"), stack) == 0
    assert not shared._pending and not shared._total
    with ExitStack() as stack:
        assert most(shared, ANYONE, stack) == 100


def test_a_command_that_fails_is_no_longer_in_progress() -> None:
    shared = Limits(RATE, max_pending=2)
    for _ in range(5):
        with pytest.raises(ValueError, match="failed"), shared.in_progress(customer("a")):
            raise ValueError("failed")
    assert shared._total == 0
