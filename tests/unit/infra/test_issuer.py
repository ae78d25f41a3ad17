"""The stack's issuer: an API verifies its tokens, and nothing of a person is in them."""

from __future__ import annotations

import json
import shutil
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from stat import S_IMODE

import httpx
import pytest

from infra.identity import caller
from infra.identity.caller import Caller
from infra.identity.issuer import OWN_CLIENTS, NoToken, TokenIssuer
from services.edge.identity import Identity
from services.edge.scopes import SCOPES
from services.edge.settings import TokenSettings
from tests.unit.api.access_tokens import Case, app_of
from tests.unit.api.in_process import send_request


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    own = TokenIssuer(tmp_path / "home" / "identity")
    own.prepare()
    return own


async def served(issuer: TokenIssuer, bearer: str) -> int:
    """The status of a route that needs sales:read; 422 is the route's own."""
    settings = {name.removeprefix("DAYBOOK_").lower(): value for name, value in issuer.settings().items()}
    app = app_of("query")
    app.state.identity = Identity(TokenSettings(**settings))
    case = Case("query", "GET", "/sales/daily", frozenset({"sales:read"}))
    response = await send_request(app, case.method, case.path, "colour=red", [("Authorization", bearer)])
    return response.status


async def test_an_api_verifies_its_tokens(issuer: TokenIssuer, tmp_path: Path) -> None:
    assert await served(issuer, f"Bearer {issuer.token('alice', ['sales:read'], 1)}") == 422
    assert await served(issuer, f"Bearer {issuer.token('alice', ['orders:read'], 1)}") == 403
    assert await served(issuer, f"Bearer {issuer.token('alice', ['sales:read'], -1)}") == 401
    stranger = TokenIssuer(tmp_path / "other" / "identity")
    stranger.prepare()
    assert await served(issuer, f"Bearer {stranger.token('alice', ['sales:read'], 1)}") == 401
    again = TokenIssuer(issuer.folder)  # another process of the command
    assert await served(issuer, f"Bearer {again.token('alice', ['sales:read'], 1)}") == 422


def test_a_token_has_an_id_instead_of_a_name(issuer: TokenIssuer, tmp_path: Path) -> None:
    claims = json.loads(urlsafe_b64decode(issuer.token("alice", [*SCOPES], 1).split(".")[1] + "=="))
    assert claims["sub"] == issuer.subject("alice") != issuer.subject("bob")
    assert "alice" not in json.dumps(claims)
    other = TokenIssuer(tmp_path / "other")
    other.prepare()
    assert other.subject("alice") != issuer.subject("alice")  # nobody finds the name without the key
    assert claims["scope"].split() == [*SCOPES]


def test_only_the_owner_reads_the_secrets(issuer: TokenIssuer) -> None:
    issuer.token("alice", [], 1)
    modes = {file.name: S_IMODE(file.stat().st_mode) for file in issuer.folder.rglob("*")}
    assert S_IMODE(issuer.folder.stat().st_mode) == 0o700
    assert modes["signing-key.json"] == 0o600
    assert "d" not in json.loads(issuer.keys.read_bytes())["keys"][0]


@pytest.mark.parametrize("name", ["", "../alice", "Alice", "a" * 33, "alice smith", "ali\nce"])
def test_what_cannot_be_a_name_is_refused(issuer: TokenIssuer, name: str) -> None:
    with pytest.raises(NoToken, match="is no name"):
        issuer.token(name, [], 1)


def test_an_unknown_scope_is_refused(issuer: TokenIssuer) -> None:
    with pytest.raises(NoToken, match="no scope orders:all: choose from orders:place"):
        issuer.token("alice", ["orders:all"], 1)


def test_both_sites_have_the_same_key_and_ids(issuer: TokenIssuer, tmp_path: Path) -> None:
    alice = issuer.subject("alice")
    away = TokenIssuer(tmp_path / "away" / "identity")
    away.prepare(issuer.folder)
    assert away.subject("alice") == alice
    assert away.subject(OWN_CLIENTS) == issuer.subject(OWN_CLIENTS)
    assert away.keys.read_bytes() == issuer.keys.read_bytes()
    shutil.rmtree(issuer.folder)
    with pytest.raises(NoToken, match="daybook up` makes its key"):
        issuer.token("alice", [], 1)
    issuer.prepare(away.folder)
    assert issuer.keys.read_bytes() == away.keys.read_bytes()
    assert issuer.subject("alice") == alice


async def test_a_client_renews_its_token(issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAYBOOK_TOKEN_KEYS", raising=False)
    client = Caller(issuer)
    first = client.headers()["Authorization"]
    assert await served(issuer, first) == 422
    assert client.headers()["Authorization"] == first
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + caller.RENEWED_SECONDS + 1)
    second = client.headers()["Authorization"]
    assert second != first
    assert client(httpx.Request("GET", "http://shop")).headers["Authorization"] == second
    shutil.rmtree(issuer.folder)  # this site's machine is lost: the token is valid at the other one
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * caller.RENEWED_SECONDS + 2)
    assert client.headers()["Authorization"] == second


def test_with_another_issuer_clients_send_the_header_of_the_environment(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAYBOOK_AUTH", raising=False)
    assert Caller().headers() == {}
    monkeypatch.setenv("DAYBOOK_AUTH", "Authorization: Bearer x.y.z")
    assert Caller().headers() == {"Authorization": "Bearer x.y.z"}
    assert Caller(issuer).headers() != Caller().headers()
    monkeypatch.setenv("DAYBOOK_TOKEN_KEYS", "https://other.example/jwks.json")
    assert Caller(issuer).headers() == Caller().headers()
