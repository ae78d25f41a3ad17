"""The two sites of the shop in containers, and what the engine knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.base.settings import AWAY_PORTS, StackSettings
from infra.dr.overview import MIRROR
from infra.stack.compose.engine import Container
from infra.stack.site import AWAY, HOME, Site

# Of each site: the service whose absence is the site's, and that of its log.
BROKERS = {HOME: ("broker", "broker-1", "broker-2", "broker-3"), AWAY: ("away-broker",)}


def sites_in_containers(settings: StackSettings, found: Sequence[Container]) -> dict[str, Site]:
    """Every site of which a broker is among the containers `found`, by name; `settings` are home's."""
    away = settings.model_copy(update={"port_base": settings.port_base + AWAY_PORTS, "site": AWAY})
    each = {HOME: settings, AWAY: away}
    services = {one.service for one in found}
    return {name: Site(name, of) for name, of in each.items() if services.intersection(BROKERS[name])}


class Engine:
    """What the engine says of each site; there is one mirror, from home to away."""

    def __init__(self, found: Sequence[Container]) -> None:
        self._found: Mapping[str, Container] = {one.service: one for one in found}

    def up(self, site: Site) -> bool:
        return any(self._runs(broker) for broker in BROKERS[site.name])

    def link(self, site: Site) -> str:
        """Containers reach each other by the network that they are in, or by none."""
        return "cut" if self.up(site) and not self._connected(site) else "whole"

    def mirror(self, site: Site) -> str:
        if site.name == HOME:
            return "none"
        mirror = self._found.get(MIRROR)
        if mirror is None or mirror.state != "running":
            return "down" if mirror is None else mirror.state
        return "ready" if mirror.health == "healthy" else mirror.health

    def _runs(self, service: str) -> bool:
        return service in self._found and self._found[service].state == "running"

    def _connected(self, site: Site) -> bool:
        brokers = [self._found[name] for name in BROKERS[site.name] if name in self._found]
        return any(one.networks for one in brokers)
