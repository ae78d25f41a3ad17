"""The two sites of a stack: their names, their folders and addresses, and the link between them.

`home` lives in the stack's own folder, `away` in `away/` below it, its ports `AWAY_PORTS` further on. Names
stay; roles (active, passive) change and are in each site's `site.control`. In containers the two share a folder
with their secrets, and have one each inside it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infra.base.journal import StackJournal
from infra.base.settings import AWAY_PORTS, StackSettings
from infra.stack.shop import database_url

HOME: Literal["home"] = "home"
AWAY: Literal["away"] = "away"


@dataclass(frozen=True)
class Site:
    """One site of the stack. `settings` are its own: home folder, ports and name."""

    settings: StackSettings

    @property
    def name(self) -> str:
        return self.settings.site

    @property
    def bootstrap(self) -> str:
        """The address of its brokers for this process."""
        return self.settings.kafka

    @property
    def link(self) -> str:
        """The address under which this process reaches its brokers at the other site; silent while the link is cut."""
        return self.settings.kafka_as(self.settings.principal, "link")

    def link_from(self, other: StackSettings, principal: str) -> str:
        """The same for a process of the `other` site, which has a file of its own."""
        return self.settings.kafka_as(principal, "link", other.kafka_identities)

    @property
    def folder(self) -> Path:
        """Its own folder, with its link's state and its journal."""
        return self.settings.home / self.name if self.settings.stack == "compose" else self.settings.home

    @property
    def link_state(self) -> Path:
        """The file that the link follows."""
        return self.folder / "link.json"

    @property
    def database_url(self) -> str:
        return database_url(self.settings)

    @property
    def journal(self) -> StackJournal:
        return StackJournal(self.folder)


def home_settings(settings: StackSettings) -> StackSettings:
    """The settings of home, given those of either site."""
    if settings.site == HOME:
        return settings
    ports = settings.port_base - AWAY_PORTS
    if settings.stack == "compose":
        return settings.model_copy(update={"port_base": ports, "site": HOME})
    return StackSettings(home=settings.home.parent, port_base=ports, site=HOME)


def away_settings(settings: StackSettings) -> StackSettings:
    """The settings of away, given those of either site. Raises ValidationError where its ports do not fit."""
    home = home_settings(settings)
    ports = home.port_base + AWAY_PORTS
    if settings.stack == "compose":
        return home.model_copy(update={"port_base": ports, "site": AWAY})
    return StackSettings(home=home.home / AWAY, port_base=ports, site=AWAY)


def sites_of(settings: StackSettings) -> dict[str, Site]:
    """Every site of the stack, by name, given the settings of either: home alone unless away has a folder."""
    home = home_settings(settings)
    sites: dict[str, Site] = {HOME: Site(home)}
    if (home.home / AWAY).is_dir():
        sites[AWAY] = Site(away_settings(home))
    return sites


def as_started(settings: StackSettings) -> StackSettings | None:
    """These settings with the ports that the site chose when it started; None where it does not run.

    Containers have the ports of the settings, and are not asked.
    """
    if settings.stack == "compose":
        return settings
    state = Site(settings).journal.running() if settings.home.exists() else None
    return None if state is None else settings.model_copy(update={"port_base": state.port_base})


def peer(settings: StackSettings) -> Site | None:
    """The other site; None where there is only one."""
    others = [site for name, site in sites_of(settings).items() if name != settings.site]
    return others[0] if others else None
