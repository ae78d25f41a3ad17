"""Who calls, with which scopes: access tokens (RFC 9068), verified in this process (docs/adr/0029).

A route declares its scopes with `scopes("orders:ship")`, and every route of the APIs must declare them, even none. The
OpenAPI document's `security` follows from that declaration. A request without a valid token is refused with 401, one
whose token lacks a scope with 403, both before its body is read.

Verification is on if DAYBOOK_TOKEN_KEYS names the issuer's public keys. Otherwise every caller may do everything.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import structlog
from fastapi import Security
from fastapi.dependencies.models import Dependant
from fastapi.openapi.models import HTTPBearer
from fastapi.params import Depends
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase
from starlette.requests import Request

from services.edge.problems import Code, Problem
from services.edge.scopes import OF_CUSTOMERS, SCOPES, WIDER
from services.edge.settings import TokenSettings
from services.kernel.record.envelope import UNAUTHENTICATED, AuthContext

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS = ("ES256", "Ed25519", "EdDSA")  # EdDSA is the name of Ed25519 before RFC 9864
TYPES = frozenset({"at+jwt", "application/at+jwt"})
CACHE_SECONDS = 60.0
CACHED_TOKENS = 10_000
REFRESH_SECONDS = 5.0
KEYS_SECONDS = 300.0
LEEWAY_SECONDS = 5
MAX_TOKEN = 8192
MAX_KEYS_BYTES = 256 * 1024
FETCH_SECONDS = 3.0
# It becomes a customer id, so it has the pattern of ids.
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
_REALM = 'Bearer realm="daybook"'

TOKENS = {
    "token_missing": Code(401, "there is no `Authorization: Bearer` header"),
    "token_expired": Code(401, "the token has expired: get a new one"),
    "token_invalid": Code(401, "the token is not one of this shop's issuer for this shop"),
    "insufficient_scope": Code(
        403, "the token lacks the scope that `scope` names", {"scope": "orders:place"}
    ),
}
KEYS_UNAVAILABLE = {"keys_unavailable": Code(503, "the issuer's keys cannot be read; repeat the request")}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. `subject` is the token's, an id and never a name; `scopes` include those that a wider one implies."""

    subject: str
    client: str
    scopes: frozenset[str]

    def customer(self, every: str) -> str | None:
        """Returns the only customer for whom it may act; None if the scope `every` allows all."""
        return None if every in self.scopes else self.subject

    @property
    def only_customer(self) -> bool:
        """Whether it can act for nobody but itself."""
        return self.scopes <= OF_CUSTOMERS

    @property
    def auth(self) -> AuthContext:
        """Who calls, as the records that follow from the request name it."""
        if not self.subject:
            return UNAUTHENTICATED
        return AuthContext("service_account" if self.client == self.subject else "user", self.subject)


ANYONE = Principal("", "", frozenset(SCOPES))
"""Every caller where tokens are not verified."""


class PublicKeys:
    """The issuer's public keys by their id, from a JWKS in a file or at a URL.

    They are read again after `KEYS_SECONDS`, and for an unknown id, at most every `REFRESH_SECONDS`. If that fails, the
    keys stay as they are.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._keys: dict[str, Key] | None = None
        self._read_at = self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    async def key(self, key_id: str) -> Key:
        """Reads the keys first if they are old or lack this one. Raises `Problem` if none have ever been read, and
        KeyError if the issuer has no such key."""
        # Whoever lacks this key waits for a reading that is under way; the others go on with the keys as they are.
        if key_id not in (self._keys or ()) if self._reading.locked() else self._due(key_id):
            async with self._reading:
                if self._due(key_id):
                    await asyncio.to_thread(self._read)
                    self._tried_at = time.monotonic()  # a slow issuer is not read by each of those who waited
        if self._keys is None:
            detail = "the keys of the issuer cannot be read"
            raise Problem(503, "keys_unavailable", detail, headers={"Retry-After": "1"})
        return self._keys[key_id]

    def _due(self, key_id: str) -> bool:
        now = time.monotonic()
        current = self._keys is not None and key_id in self._keys and now - self._read_at < KEYS_SECONDS
        return not current and now - self._tried_at >= REFRESH_SECONDS

    def _read(self) -> None:
        from joserfc.errors import JoseError
        from joserfc.jwk import JWKRegistry

        try:
            entries = list(msgspec.json.decode(self._bytes())["keys"])
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            log.warning("the keys of the issuer are not readable", source=self._source, reason=str(error))
            return
        keys: dict[str, Key] = {}
        for entry in entries:
            try:
                if entry["crv"] in ("P-256", "Ed25519") and entry.get("use", "sig") == "sig":
                    keys[entry["kid"]] = JWKRegistry.import_key(
                        {name: value for name, value in entry.items() if name != "d"}
                    )
            except (JoseError, KeyError, TypeError, ValueError, AttributeError):
                continue  # a key of another kind
        self._keys, self._read_at = keys, time.monotonic()

    def _bytes(self) -> bytes:
        if urlsplit(self._source).scheme in ("http", "https", "file"):
            with urlopen(self._source, timeout=FETCH_SECONDS) as response:
                return bytes(response.read(MAX_KEYS_BYTES))
        return Path(self._source).read_bytes()


class Identity:
    """Finds out who calls. Caches a verified token by its hash until it expires, at most `CACHE_SECONDS`."""

    def __init__(self, settings: TokenSettings) -> None:
        self._keys = PublicKeys(settings.token_keys) if settings.token_keys else None
        self._issuer, self._audience = settings.token_issuer, settings.token_audience
        self._verified: dict[bytes, tuple[float, Principal]] = {}

    async def principal(self, request: Request) -> Principal:
        """Returns who sent the request. Raises `Problem` 401 or 503."""
        if self._keys is None:
            return ANYONE
        token = _bearer(request.scope["headers"])
        digest = hashlib.sha256(token).digest()
        until, principal = self._verified.get(digest, (0.0, ANYONE))
        if time.monotonic() < until:
            return principal
        claims = await self._claims(token, self._keys)
        principal = _principal(claims)
        self._cache(digest, principal, claims["exp"] - time.time())
        return principal

    def _cache(self, digest: bytes, principal: Principal, seconds: float) -> None:
        if len(self._verified) >= CACHED_TOKENS:
            self._verified.clear()
        self._verified[digest] = (time.monotonic() + min(CACHE_SECONDS, seconds), principal)

    async def _claims(self, token: bytes, keys: PublicKeys) -> dict[str, Any]:
        """Returns the claims of a valid token. Raises `Problem`."""
        from joserfc import jws, jwt
        from joserfc.errors import ExpiredTokenError, JoseError

        try:
            key_id = jws.extract_compact(token).headers()["kid"]
            decoded = jwt.decode(token, await keys.key(key_id), algorithms=ALGORITHMS)
            if str(decoded.header.get("typ", "")).lower() not in TYPES:
                raise _invalid("it is no access token (RFC 9068)")
            self._registry().validate(decoded.claims)
        except ExpiredTokenError:
            raise _refused("token_expired", "the token has expired") from None
        except JoseError as error:
            raise _invalid(error.description or error.error) from None
        except (KeyError, ValueError, TypeError, RecursionError):
            raise _invalid("it is malformed, or its key is not one of the issuer's") from None
        return decoded.claims

    def _registry(self) -> Any:
        from joserfc.jwt import JWTClaimsRegistry

        return JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self._audience},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
            jti={"essential": True},
            client_id={"essential": True},
        )


def _bearer(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Returns the token of the request. Raises `Problem` 401."""
    values = [value for name, value in headers if name == b"authorization"]
    if not values:
        raise _refused("token_missing", "this request needs an access token")
    scheme, _, token = values[0].partition(b" ")
    if len(values) > 1 or scheme.lower() != b"bearer" or not 0 < len(token) <= MAX_TOKEN:
        raise _invalid("one header `Authorization: Bearer <token>` is expected")
    return token


def _principal(claims: Mapping[str, Any]) -> Principal:
    subject, client, scope = claims["sub"], claims["client_id"], claims.get("scope", "")
    if not _SUBJECT.fullmatch(subject):
        raise _invalid("its subject is not up to 64 letters, digits and ._~-")
    if not isinstance(client, str) or not isinstance(scope, str):
        raise _invalid("client_id and scope are texts")
    granted = scope.split()
    implied = (narrow for narrow, wide in WIDER.items() if wide in granted)
    return Principal(subject, client, frozenset(granted).union(implied) & SCOPES.keys())


def _refused(code: str, detail: str) -> Problem:
    challenge = _REALM if code == "token_missing" else f'{_REALM}, error="invalid_token"'
    return Problem(401, code, detail, headers={"WWW-Authenticate": challenge})


def _invalid(detail: str) -> Problem:
    return _refused("token_invalid", f"the token is not valid: {detail}")


def insufficient(*needed: str) -> Problem:
    """Returns a 403 that names the scopes."""
    scope = " ".join(sorted(needed))
    challenge = f'{_REALM}, error="insufficient_scope", scope="{scope}"'
    detail = f"the token lacks the scope {scope}"
    return Problem(403, "insufficient_scope", detail, headers={"WWW-Authenticate": challenge}, scope=scope)


class BearerToken(SecurityBase):
    """The security scheme of all APIs, as a dependency of FastAPI."""

    def __init__(self) -> None:
        self.scheme_name = "token"
        granted = ", ".join(f"`{scope}`: {about.lower()}" for scope, about in SCOPES.items())
        self.model = HTTPBearer(
            bearerFormat="JWT", description=f"An access token (RFC 9068). Scopes: {granted}."
        )

    async def __call__(self, request: Request, needed: SecurityScopes) -> Principal:
        return await authenticate(request, frozenset(needed.scopes))


_TOKEN = BearerToken()


def scopes(*needed: str) -> Depends:
    """Declares the scopes of a route or of all routes of a router; without any, a valid token is enough."""
    if unknown := {*needed} - SCOPES.keys():
        raise ValueError(f"no such scope: {', '.join(sorted(unknown))}")
    return Security(_TOKEN, scopes=[*needed])  # type: ignore[no-any-return]


async def authenticate(request: Request, needed: frozenset[str]) -> Principal:
    """Returns who calls, for the handler too (`caller`). Raises `Problem` if that is not known or not enough."""
    principal = request.state.principal = await request.app.state.identity.principal(request)
    await request.app.state.limits.admit(request, principal)
    if missing := needed - principal.scopes:
        raise insufficient(*missing)
    return principal  # type: ignore[no-any-return]


def caller(request: Request) -> Principal:
    """Returns who sent a request that a route with scopes handles."""
    return request.state.principal  # type: ignore[no-any-return]


def declared_scopes(dependant: Dependant) -> frozenset[str]:
    """Returns the scopes that a route declares. Raises TypeError if it declares nothing: it would be open to all."""
    own = [dependency for dependency in dependant.dependencies if dependency.call is _TOKEN]
    if not own:
        raise TypeError(f"{dependant.path} declares no scopes: add scopes(…), without any for every token")
    return frozenset(scope for dependency in own for scope in dependency.own_oauth_scopes or ())
