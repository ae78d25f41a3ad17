"""Nobody passes without a valid token: every route of the APIs and of the registry against every way to have none."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.client import BadStatusLine, IncompleteRead
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from contracts.order.commands import CancelOrder
from services.edge import identity
from services.edge.app import api_router
from services.edge.identity import Identity, PublicKeys
from services.edge.limits import Limits
from services.edge.requests import WriteRoute
from services.edge.scopes import WIDER
from services.edge.settings import LimitSettings, TokenSettings
from services.order.api import ORDER, CancellationRequest
from services.projection.reads import ReadRoute
from tests.unit.api.access_tokens import (
    APPS,
    AUDIENCE,
    EC,
    ED,
    ISSUER,
    OLD,
    SUBJECT,
    UNLISTED,
    Case,
    app_of,
    bearer,
    cases,
    narrower,
    public,
    refused_headers,
    token,
)
from tests.unit.api.in_process import AppResponse, send_request


@pytest.fixture(autouse=True)
def verifying(tmp_path: Path) -> TokenSettings:
    """All APIs verify tokens of the issuer, however many are sent in a second."""
    file = tmp_path / "jwks.json"
    file.write_text(public(EC, ED, OLD))
    settings = TokenSettings(token_keys=str(file), token_issuer=ISSUER, token_audience=AUDIENCE)
    for name in APPS:
        app_of(name).state.identity = Identity(settings)
        app_of(name).state.limits = Limits(LimitSettings(requests_per_second=0))
    return settings


async def response_of(case: Case, headers: list[tuple[str, str]], query: str = "colour=red") -> AppResponse:
    return await send_request(app_of(case.api), case.method, case.path, query, headers, b"no JSON")


def challenge(response: AppResponse) -> str:
    return dict(response.headers).get(b"www-authenticate", b"").decode()


def problem(case: Case, response: AppResponse) -> str:
    headers = dict(response.headers)
    assert headers[b"content-type"] == b"application/problem+json"
    return "" if case.method == "HEAD" else json.loads(response.body)["code"]


async def test_no_route_serves_a_request_without_a_valid_token() -> None:
    """Route x method x variant, generated from the applications' routes."""
    cells = 0
    refused = refused_headers()
    for case in cases():
        for name, headers in refused.items():
            response = await response_of(case, headers)
            assert response.status == 401, (case, name, response)
            code = problem(case, response)
            assert code in ("", "token_missing", "token_expired", "token_invalid"), (case, name)
            assert ("error=" in challenge(response)) == (name not in ("no header", "in the query's place"))
            assert challenge(response).startswith("Bearer realm="), (case, name)
            cells += 1
        for name, granted in narrower(case.scopes).items():
            response = await response_of(case, bearer(token(scope=granted)))
            assert response.status == 403, (case, name, response)
            assert problem(case, response) in ("", "insufficient_scope")
            assert f'scope="{" ".join(case.scopes)}"' in challenge(response)
            cells += 1
    print(f"{cells} cells, 0 allowed")
    assert cells >= 1000


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("case", [*cases()], ids=lambda case: f"{case.method} {case.path}")
async def test_a_token_with_the_scope_passes(case: Case) -> None:
    """Then the request itself is refused: it is no JSON, or it has an unknown parameter."""
    for scope in case.scopes or {""}:
        enough = {scope, WIDER.get(scope, scope)}
        for granted in enough:
            for key, alg in ((EC, "ES256"), (ED, "Ed25519"), (OLD, "EdDSA")):
                headers = bearer(token(key, alg, scope=granted, aud=["other", AUDIENCE]))
                assert (await response_of(case, headers)).status == 422
                assert (await response_of(case, headers)).status == 422, "cached"


async def test_a_customer_orders_and_lists_only_as_the_subject() -> None:
    headers = bearer(token(scope="orders:place orders:read"))
    body = json.dumps(ORDER | {"customer_id": "another"}).encode()
    response = await send_request(app_of("order"), "POST", "/orders", "", headers, body)
    assert (response.status, json.loads(response.body)["scope"]) == (403, "orders:place.any")
    assert 'error="insufficient_scope"' in challenge(response)


async def test_a_customer_cancels_only_as_the_subject() -> None:
    request = CancellationRequest(reason="ordered twice")
    assert request.of_customer(None) is request
    own = request.of_customer(SUBJECT)
    assert own.command("536365", 5) == CancelOrder("536365", "ordered twice", 5, SUBJECT)
    assert own.model_dump_json() != request.model_dump_json(), "another fingerprint"
    assert request.command("536365", 5).customer_id is None
    hidden = b'{"reason": "x", "customer_id": "another"}'
    path = "/orders/536365/cancellation"
    headers = bearer(token(scope="orders:place"))
    assert (await send_request(app_of("order"), "POST", path, "", headers, hidden)).status == 422
    headers = [*headers, ("If-Match", '"3"')]
    response = await send_request(app_of("order"), "POST", path, "", headers, b'{"reason": "x"}')
    assert (response.status, json.loads(response.body)["field"]) == (422, "If-Match")


def test_the_document_names_the_scopes_of_every_operation() -> None:
    for case in cases():
        if case.method != "HEAD" and case.api != "registry":  # which has no document
            route = next(
                route
                for route in app_of(case.api).routes
                if isinstance(route, APIRoute)
                and case.method in (route.methods or ())
                and route.path.replace("{", "").replace("}", "") == case.path
            )
            paths = app_of(case.api).openapi()["paths"]
            assert paths[route.path][case.method.lower()]["security"] == [{"token": sorted(case.scopes)}]


@pytest.mark.parametrize("route_class", [WriteRoute, ReadRoute])
def test_a_route_without_scopes_cannot_be_made(route_class: type[APIRoute]) -> None:
    async def open_to_all() -> None: ...

    with pytest.raises(TypeError, match="declares no scopes"):
        api_router("open", route_class=route_class).add_api_route("/open", open_to_all)
    with pytest.raises(ValueError, match="no such scope: orders:all"):
        identity.scopes("orders:all")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time() + self.now - 1000.0


async def served(bearer_token: str) -> int:
    case = Case("query", "GET", "/stock", frozenset())
    return (await response_of(case, bearer(bearer_token))).status


async def test_keys_rotate_without_a_restart(
    verifying: TokenSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(identity, "time", clock)
    reads = 0
    read = PublicKeys._read

    def counted(keys: PublicKeys) -> None:
        nonlocal reads
        reads += 1
        read(keys)

    monkeypatch.setattr(PublicKeys, "_read", counted)
    assert await served(token()) == 422
    file = Path(verifying.token_keys)
    file.write_text(public(UNLISTED))
    for number in range(20):  # an unknown key: read again, but not for each request
        assert await served(token(UNLISTED, jti=str(number))) == 401
    assert reads == 1
    clock.now += identity.REFRESH_SECONDS
    assert await served(token(UNLISTED)) == 422
    assert reads == 2
    assert await served(token(jti="new")) == 401, "the removed key"
    file.write_text("damaged")
    clock.now += identity.KEYS_SECONDS
    assert await served(token(UNLISTED, jti="damaged")) == 422, "the keys stay"


async def test_a_slow_issuer_delays_nobody_whose_key_is_there(
    verifying: TokenSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys are old, and the issuer takes longer to respond than they may be tried again."""
    clock, keys, reads = Clock(), PublicKeys(verifying.token_keys), 0
    monkeypatch.setattr(identity, "time", clock)
    await keys.key("ec")
    clock.now += identity.KEYS_SECONDS
    reading, responds = threading.Event(), threading.Event()

    def slow(_: PublicKeys) -> None:
        nonlocal reads
        reads += 1
        reading.set()
        responds.wait(5)

    monkeypatch.setattr(PublicKeys, "_read", slow)
    first = asyncio.create_task(keys.key("ec"))
    assert await asyncio.to_thread(reading.wait, 5)
    clock.now += 2 * identity.REFRESH_SECONDS
    for _ in range(20):
        await asyncio.wait_for(keys.key("ec"), 1)
    unlisted = [asyncio.create_task(keys.key("unlisted")) for _ in range(5)]
    await asyncio.sleep(0)
    responds.set()
    await first
    assert all(
        isinstance(result, KeyError) for result in await asyncio.gather(*unlisted, return_exceptions=True)
    )
    assert reads == 1


@pytest.mark.parametrize("broken", [IncompleteRead(b""), BadStatusLine("x"), b'{"keys": null}'])
async def test_keys_that_cannot_be_read_again_stay(
    monkeypatch: pytest.MonkeyPatch, broken: Exception | bytes
) -> None:
    clock = Clock()
    monkeypatch.setattr(identity, "time", clock)
    assert await served(token()) == 422

    def content(_: PublicKeys) -> bytes:
        if isinstance(broken, Exception):
            raise broken
        return broken

    monkeypatch.setattr(PublicKeys, "_bytes", content)
    clock.now += identity.KEYS_SECONDS
    assert await served(token(jti="later")) == 422


async def test_requests_wait_for_the_first_reading_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    read = PublicKeys._read

    def slow(keys: PublicKeys) -> None:
        time.sleep(0.05)
        read(keys)

    monkeypatch.setattr(PublicKeys, "_read", slow)
    tokens = [token(jti=str(number)) for number in range(5)]
    assert await asyncio.gather(*map(served, tokens)) == [422] * 5


async def test_without_keys_the_client_is_to_try_again(verifying: TokenSettings) -> None:
    Path(verifying.token_keys).unlink()
    case = Case("query", "GET", "/stock", frozenset())
    response = await response_of(case, bearer(token()))
    assert (response.status, problem(case, response)) == (503, "keys_unavailable")
    assert dict(response.headers)[b"retry-after"] == b"1"


async def test_a_token_is_cached_until_it_expires_at_most_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(identity, "time", clock)
    verified = 0
    claims = Identity._claims

    async def counted(*arguments: Any) -> Any:
        nonlocal verified
        verified += 1
        return await claims(*arguments)

    monkeypatch.setattr(Identity, "_claims", counted)
    long, short = token(), token(exp=int(time.time()) + 20)
    for _ in range(3):
        assert [await served(long), await served(short)] == [422, 422]
    assert verified == 2
    clock.now += 25  # the short one is not cached any more
    await served(short)
    assert verified == 3
    await served(long)
    assert verified == 3
    clock.now += 36
    await served(long)
    assert verified == 4


def test_keys_need_an_issuer() -> None:
    with pytest.raises(ValueError, match="DAYBOOK_TOKEN_ISSUER"):
        TokenSettings(token_keys="jwks.json")


async def test_without_keys_in_the_settings_every_caller_may_do_everything() -> None:
    app_of("query").state.identity = Identity(TokenSettings())
    assert await served("anything") == 422
