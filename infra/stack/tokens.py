"""The issuer of a stack's access tokens: who verifies its tokens, and who sends them."""

import os
from collections.abc import Mapping

from infra.base.settings import StackSettings
from infra.identity.caller import Caller
from infra.identity.issuer import TokenIssuer
from infra.stack.site import peer, sites_of

_KEYS = "DAYBOOK_TOKEN_KEYS"


def issuer_of(settings: StackSettings) -> TokenIssuer:
    """The issuer of a stack, in the folder of a site that has its key: the machine of one site may be new."""
    issuers = [_issuer(site.settings) for site in sites_of(settings).values()]
    return next((issuer for issuer in issuers if issuer.prepared), issuers[0])


def caller_of(settings: StackSettings) -> Caller:
    """How a client of ours calls the APIs of a stack, at either site."""
    return Caller(issuer_of(settings) if settings.secured else None)


def demo_header(settings: StackSettings) -> str:
    """`Authorization: Bearer …` for people who try the shop: empty without tokens, as in containers, and with
    another issuer what DAYBOOK_AUTH has."""
    if os.environ.get(_KEYS) and settings.secured:
        return os.environ.get("DAYBOOK_AUTH", "")
    issuer = issuer_of(settings)
    return issuer.demo_header() if settings.secured and issuer.prepared else ""


def prepare_issuer(settings: StackSettings) -> None:
    """Make what a site lacks of its issuer, or take the other site's. Raises OSError."""
    other = peer(settings)
    _issuer(settings).prepare(None if other is None else _issuer(other.settings).folder)


def verification(settings: StackSettings) -> Mapping[str, str]:
    """The environment with which the APIs of a site verify tokens; DAYBOOK_TOKEN_KEYS of this process comes first."""
    if not settings.secured:
        return {_KEYS: ""}
    return {} if os.environ.get(_KEYS) else _issuer(settings).settings()


def _issuer(settings: StackSettings) -> TokenIssuer:
    return TokenIssuer(settings.home / "identity")
