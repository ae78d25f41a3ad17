"""Every route of the three APIs and of the registry, and every way to have no valid token for it."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.routing import APIRoute
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey

from contracts.lock import load_lock
from infra.log.registry import create as registry_app
from services.edge.identity import declared_scopes
from services.edge.scopes import SCOPES, WIDER
from services.edge.settings import ApiSettings
from services.inventory.api import create as inventory_app
from services.order.api import OrderApiSettings
from services.order.api import create as order_app
from services.projection.api import query_app
from services.projection.engine.settings import QuerySettings

SECRET: dict[str, Any] = {"hash_key": "a key for tests alone"}
APPS: dict[str, Callable[[], FastAPI]] = {
    "order": lambda: order_app(OrderApiSettings(**SECRET)),
    "inventory": lambda: inventory_app(ApiSettings(**SECRET)),
    "query": lambda: query_app(QuerySettings()),
    "registry": lambda: registry_app(load_lock()),
}
ISSUER, AUDIENCE, SUBJECT = "https://issuer.example", "daybook", "c-5f1e8a52"
EC = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig", "alg": "ES256"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed", "use": "sig", "alg": "Ed25519"})
OLD = OKPKey.generate_key("Ed25519", {"kid": "old", "use": "sig", "alg": "EdDSA"})
STRANGER = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig", "alg": "ES256"})
UNLISTED = ECKey.generate_key("P-256", {"kid": "unlisted", "use": "sig", "alg": "ES256"})
EVERY_SCOPE = " ".join(SCOPES)
MISSING = object()


class Case(NamedTuple):
    """A route and a method of an API."""

    api: str
    method: str
    path: str
    scopes: frozenset[str]


@cache
def app_of(name: str) -> FastAPI:
    return APPS[name]()


def cases() -> Iterator[Case]:
    for name in APPS:
        for route in app_of(name).routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                methods = {*(route.methods or ())}
                methods |= {"HEAD"} if "GET" in methods else set()
                for method in sorted(methods):
                    path = route.path.replace("{", "").replace("}", "")
                    yield Case(name, method, path, declared_scopes(route.dependant))


def public(*keys: Key) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


def token(key: Key = EC, alg: str = "ES256", *, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A valid token, except for what is given; MISSING removes a claim or a member of the header."""
    now = int(time.time())
    whole = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "client_id": "tests", "jti": "1", "iat": now,
        "exp": now + 36_000, "scope": EVERY_SCOPE,
    }  # fmt: skip
    head = {"alg": alg, "typ": "at+jwt", "kid": key.kid, **(header or {})}
    head = {name: value for name, value in head.items() if value is not MISSING}
    body = {name: value for name, value in (whole | claims).items() if value is not MISSING}
    return jwt.encode(head, body, key, algorithms=[alg], default_type=None)


def encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def bearer(text: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {text}")]


def unsigned(**header: Any) -> str:
    _, payload, signature = token().split(".")
    return f"{encoded(json.dumps(header).encode())}.{payload}.{signature if header['alg'] != 'none' else ''}"


def tampered() -> str:
    """The payload of another token under the signature of a weaker one."""
    head, _, signature = token(scope="").split(".")
    return f"{head}.{token().split('.')[1]}.{signature}"


def symmetric() -> str:
    """Signed with what everybody may read: the public key, as the secret of another algorithm."""
    content = unsigned(alg="HS256", typ="at+jwt", kid="ec").rpartition(".")[0]
    signature = hmac.digest(EC.as_pem(private=False), content.encode(), "sha256")
    return f"{content}.{encoded(signature)}"


def refused_headers() -> dict[str, list[tuple[str, str]]]:
    """By name: the headers of requests that no route may serve, whatever scopes the tokens have."""
    now = int(time.time())
    deep = encoded(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}")
    tokens = {
        "expired": token(exp=now - 60),
        "expired long ago": token(ED, "Ed25519", exp=1),
        "another audience": token(aud="warehouse"),
        "other audiences": token(aud=["warehouse", "daybook2"]),
        "no audience": token(aud=MISSING),
        "empty audience": token(aud=""),
        "another issuer": token(iss="https://issuer.example.org"),
        "no issuer": token(iss=MISSING),
        "issuers": token(iss=[ISSUER]),
        "another key of the same id": token(STRANGER),
        "a key that is not listed": token(UNLISTED),
        "no key id": token(header={"kid": MISSING}),
        "the id of another key": token(header={"kid": "ed"}),
        "none": unsigned(alg="none", typ="at+jwt", kid="ec"),
        "None": unsigned(alg="None", typ="at+jwt", kid="ec"),
        "the public key as a secret": symmetric(),
        "another algorithm in the header": unsigned(alg="ES384", typ="at+jwt", kid="ec"),
        "no algorithm": unsigned(alg="", typ="at+jwt", kid="ec"),
        "an ID token": token(header={"typ": "JWT"}),
        "no type": token(header={"typ": MISSING}),
        "a critical header": token(header={"kid": "ec", "typ": "at+jwt;crit"}),
        "no expiry": token(exp=MISSING),
        "an expiry of text": token(exp="tomorrow"),
        "not yet valid": token(nbf=now + 600),
        "issued in the future": token(iat=now + 600),
        "no time of issue": token(iat=MISSING),
        "no subject": token(sub=MISSING),
        "an empty subject": token(sub=""),
        "a subject that is a number": token(sub=7),
        "a subject that is a name": token(sub="Alice Smith"),
        "no client": token(client_id=MISSING),
        "clients": token(client_id=["tests"]),
        "no token id": token(jti=MISSING),
        "scopes as a list": token(scope=[*SCOPES]),
        "another payload": tampered(),
        "half a signature": token()[:-40],
        "no signature": token().rpartition(".")[0],
        "four parts": f"{token()}.{encoded(b'x')}",
        "not base64": "a.b.c",
        "no JSON": f"{encoded(b'x')}.{encoded(b'y')}.{encoded(b'z')}",
        "a deep header": f"{deep[:8000]}.e30.e30",
        "too long": "x" * 9000,
        "a space": token() + " x",
    }  # fmt: skip
    headers = {name: bearer(text) for name, text in tokens.items()}
    return headers | {
        "no header": [],
        "an empty header": [("Authorization", "")],
        "no token": [("Authorization", "Bearer")],
        "Basic": [("Authorization", "Basic YWxpY2U6c2VjcmV0")],
        "twice": bearer(token()) * 2,
        "in the query's place": [("X-Authorization", f"Bearer {token()}")],
    }


def narrower(needed: frozenset[str]) -> dict[str, str]:
    """By name: scopes that are not enough."""
    enough = needed | {WIDER[scope] for scope in needed if scope in WIDER}
    others = [scope for scope in SCOPES if scope not in enough]
    if not needed:
        return {}
    return {
        "no scope": "",
        "all others": " ".join(others),
        "in capitals": " ".join(needed).upper(),
        "the beginning": " ".join(scope[:-1] for scope in needed),
        **{f"only {scope}": scope for scope in others},
    }
