"""The issuer of a stack: it signs access tokens (RFC 9068) for people who try the shop.

Everything lies in the folder `identity` of each site (0700): the private key (0600), and what the APIs read: the public
keys (JWKS) and the issuer's metadata (RFC 8414). Both sites of a shop have the same key, from which the ids follow that
stand for names: a client is the same principal after the loss of a site. A shop for others uses an OpenID provider
instead, by the same settings.
"""

from __future__ import annotations

import hmac
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from infra.base.errors import DaybookError
from infra.base.files import kept_secret, write_changed
from services.edge.scopes import SCOPES

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

ISSUER = "https://daybook.invalid"  # a name that never exists (RFC 2606)
AUDIENCE = "daybook"
CLIENT = "daybook-cli"
DEMO, DEMO_HOURS = "demo", 12.0
OWN_CLIENTS = "daybook"
_ALGORITHM = "ES256"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


class NoToken(DaybookError):
    """There is no token for this name or these scopes."""


@dataclass(frozen=True)
class TokenIssuer:
    """The issuer whose state is in `folder`; `prepare` makes its key.

    The APIs find the public keys in the folder `published`, if that is another one: in a container.
    """

    folder: Path
    published: Path | None = None

    @property
    def keys(self) -> Path:
        return self.folder / "jwks.json"

    @property
    def prepared(self) -> bool:
        return self._private.exists()

    def settings(self) -> dict[str, str]:
        """The environment with which the APIs verify this issuer's tokens."""
        return {
            "DAYBOOK_TOKEN_KEYS": str(self._published_keys),
            "DAYBOOK_TOKEN_ISSUER": ISSUER,
            "DAYBOOK_TOKEN_AUDIENCE": AUDIENCE,
        }

    def subject(self, name: str) -> str:
        """The id that stands for a name: nobody finds the name without the issuer's key. The same at both sites.

        Raises NoToken for what is no name, and before `prepare`.
        """
        if not _NAME.fullmatch(name):
            raise NoToken(f"{name} is no name here: up to 32 lower-case letters, digits and ._-")
        secret = str(self._key().as_dict(private=True)["d"]).encode()
        return hmac.new(secret, name.encode(), "sha256").hexdigest()[:32]

    def token(self, name: str, scopes: list[str], hours: float) -> str:
        """An access token for `name`. Raises NoToken."""
        from joserfc import jwt

        if unknown := [scope for scope in scopes if scope not in SCOPES]:
            raise NoToken(f"there is no scope {', '.join(unknown)}: choose from {', '.join(SCOPES)}")
        key, now = self._key(), int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": self.subject(name),
            "client_id": CLIENT,
            "iat": now,
            "exp": now + int(hours * 3600),
            "jti": uuid4().hex,
            "scope": " ".join(scopes),
        }
        header = {"alg": _ALGORITHM, "typ": "at+jwt", "kid": key.kid}
        return jwt.encode(header, claims, key, algorithms=[_ALGORITHM])

    def demo_header(self) -> str:
        """`Authorization: Bearer …` of a token with every scope."""
        return f"Authorization: Bearer {self.token(DEMO, [*SCOPES], DEMO_HOURS)}"

    def prepare(self, copy: Path | None = None) -> None:
        """Make the private key where it is missing, and publish its public part. Raises OSError.

        The key in the folder `copy` of the other site is taken from there.
        """
        from joserfc.jwk import ECKey

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if copy is not None and (copy / self._private.name).exists():
            kept_secret(self._private, (copy / self._private.name).read_text())
        if not self.prepared:
            fresh = ECKey.generate_key("P-256", {"use": "sig", "alg": _ALGORITHM}, auto_kid=True)
            kept_secret(self._private, msgspec.json.encode(fresh.as_dict(private=True)).decode())
        keys = {"keys": [self._key().as_dict(private=False)]}
        write_changed(self.keys, msgspec.json.encode(keys))
        write_changed(self.folder / "openid-configuration.json", msgspec.json.encode(self._metadata()))

    @property
    def _published_keys(self) -> Path:
        return (self.published or self.folder).absolute() / self.keys.name

    @property
    def _private(self) -> Path:
        return self.folder / "signing-key.json"

    def _key(self) -> ECKey:
        """The private key. Raises NoToken before `prepare`: an emptied machine must not make another key."""
        from joserfc.jwk import ECKey

        if not self.prepared:
            raise NoToken("this shop has no issuer yet: `./daybook up` makes its key, without --insecure")
        return ECKey.import_key(msgspec.json.decode(self._private.read_bytes()))

    def _metadata(self) -> dict[str, object]:
        return {
            "issuer": ISSUER,
            "jwks_uri": self._published_keys.as_uri(),
            "scopes_supported": [*SCOPES],
            "response_types_supported": [],
            "grant_types_supported": [],
        }
