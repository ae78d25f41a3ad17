"""The one place where a client of ours gets the header with which it calls the shop's APIs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from infra.identity.issuer import OWN_CLIENTS, TokenIssuer
from services.edge.scopes import SCOPES

if TYPE_CHECKING:
    import httpx

HOURS = 1.0
RENEWED_SECONDS = 1800.0
_AUTH, _KEYS = "DAYBOOK_AUTH", "DAYBOOK_TOKEN_KEYS"


class Caller:
    """Signs short-lived tokens with every scope, and renews them, so that a client may run for days.

    It is also an `auth` of httpx. Without an issuer of the stack's own, or if DAYBOOK_TOKEN_KEYS names another one, it
    sends what the environment has as DAYBOOK_AUTH, or nothing."""

    def __init__(self, issuer: TokenIssuer | None = None) -> None:
        self._issuer = None if os.environ.get(_KEYS) else issuer
        self._token, self._until = "", float("-inf")

    def headers(self) -> dict[str, str]:
        """`Authorization` with a token that is valid for half an hour at least; nothing where there is no key."""
        if self._issuer is None:
            name, _, value = os.environ.get(_AUTH, "").partition(": ")
            return {name: value} if value else {}
        if time.monotonic() >= self._until and self._issuer.prepared:
            self._token = self._issuer.token(OWN_CLIENTS, [*SCOPES], HOURS)
            self._until = time.monotonic() + RENEWED_SECONDS
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def __call__(self, request: httpx.Request) -> httpx.Request:
        request.headers.update(self.headers())
        return request
