"""Where clients reach the shop: at the router where two sites run, else at the active site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.base.settings import StackSettings
from infra.dr.plan import controls, newest_active
from infra.stack.platform import platform_of
from infra.stack.shop import ROUTED, ROUTER, addresses, http_ready
from infra.stack.site import Site, home_settings, own_site


@dataclass(frozen=True)
class Entrance:
    """The addresses for clients as `addresses` names them, and in words whose they are; no words for one site."""

    addresses: Mapping[str, str]
    about: str = ""


def entrance(settings: StackSettings) -> Entrance:
    """The addresses for clients of a stack, given the settings of either site."""
    sites = platform_of(settings).sites()
    if len(sites) < 2:
        return Entrance(addresses(settings))
    active = active_site(sites)
    own = addresses((active or own_site(settings)).settings)
    whose = f"{active.name}, the active site" if active else f"{settings.site}: no active site responds"
    home = home_settings(settings)
    if not http_ready(home.url(ROUTER), "live"):
        return Entrance(own, f"The router does not run. All addresses are those of {whose}.")
    routed = {_variable(api): home.url(name) for api, name in ROUTED.items()}
    return Entrance(
        own | routed, f"The APIs' addresses follow the active site. The others are those of {whose}."
    )


def active_site(sites: Mapping[str, Site]) -> Site | None:
    """The active site of the newest epoch; None where none responds."""
    name = newest_active(controls(sites))
    return None if name is None else sites[name]


def _variable(api: str) -> str:
    return f"DAYBOOK_{api.removesuffix('-api').upper()}_URL"
