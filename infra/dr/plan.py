"""A failover's steps as an operator sees them, the two sites that it is about, and where clients reach the shop."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from contracts.kernel.records import SiteSwitch
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.log.control import READ_SECONDS, SiteSilent, read_site
from infra.stack.platform import platform_of
from infra.stack.shop import ROUTED, ROUTER, addresses, http_ready
from infra.stack.site import Site, home_settings
from services.kernel.log.control import Control
from services.kernel.log.reader import Partition

Show = Callable[[str], None]


@dataclass(frozen=True)
class SiteStep:
    """One finished step; `detail` is its result in words."""

    name: str
    seconds: float
    detail: str = ""


@dataclass
class Doing:
    """The current step; its code may set `detail`."""

    detail: str = ""


@dataclass
class Steps:
    """The finished steps; `show` receives the name of each step when it starts."""

    show: Show = lambda _: None
    done: list[SiteStep] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Doing]:
        self.show(name)
        doing, began = Doing(), time.monotonic()
        yield doing
        self.done.append(SiteStep(name, time.monotonic() - began, doing.detail))


def ends_of(switch: SiteSwitch) -> dict[Partition, int]:
    """The offset of the last mirrored record of each partition at the target, -1 where there is none."""
    return {(end.topic, end.partition): end.offset for end in switch.ends}


def both_sites(settings: StackSettings) -> dict[str, Site]:
    """Raises NotDone where there is one site only."""
    sites = dict(platform_of(settings).sites())
    if len(sites) != 2:
        raise NotDone("this stack has one site: `./daybook up --sites 2` starts two")
    return sites


def controls(sites: Mapping[str, Site], seconds: float = READ_SECONDS) -> dict[str, Control | None]:
    """The control records of each site, from its own broker; None where it is silent for so long."""
    addresses = (site.bootstrap for site in sites.values())
    return dict(zip(sites, controls_at(*addresses, seconds=seconds), strict=True))


def controls_at(*bootstraps: str, seconds: float = READ_SECONDS) -> list[Control | None]:
    """`control_at` of each, at the same time: several silent ones cost one timeout."""
    with ThreadPoolExecutor(len(bootstraps)) as pool:
        return list(pool.map(partial(control_at, seconds=seconds), bootstraps))


def control_at(bootstrap: str, seconds: float = READ_SECONDS) -> Control | None:
    """The control records at this address; None where the broker is silent for so long."""
    try:
        return read_site(bootstrap, seconds)
    except SiteSilent:
        return None


def newest_active(states: Mapping[str, Control | None]) -> str | None:
    """The site that is active in the newest epoch; None where none responds. A lost one may still say active."""
    epochs = {
        name: control.role.epoch
        for name, control in states.items()
        if control is not None and control.role.role == "active"
    }
    return max(epochs, key=lambda name: epochs[name], default=None)


def other_than(sites: Mapping[str, Site], name: str) -> Site:
    """Raises NotDone where `name` is not one of the two sites."""
    if name not in sites:
        raise NotDone(f"there is no site {name}: the sites are {' and '.join(sites)}")
    return next(site for other, site in sites.items() if other != name)


def passive_site(sites: Mapping[str, Site], states: Mapping[str, Control | None]) -> Site:
    """The one site that responds and is passive. Raises NotDone."""
    passive = [name for name, control in states.items() if control and control.role.role == "passive"]
    if len(passive) != 1:
        reason = "both sites are passive" if passive else "no passive site responds"
        raise NotDone(f"{reason}: name the site that is to become active with --to")
    return sites[passive[0]]


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
    own = addresses((active or Site(settings)).settings)
    whose = f"{active.name}, the active site" if active else f"{settings.site}: no active site responds"
    home = home_settings(settings)
    if not http_ready(home.health_url(ROUTER), "live"):
        return Entrance(own, f"The router does not run. All addresses are those of {whose}.")
    routed = {
        f"DAYBOOK_{api.removesuffix('-api').upper()}_URL": home.url(name) for api, name in ROUTED.items()
    }
    return Entrance(
        own | routed, f"The APIs' addresses follow the active site. The others are those of {whose}."
    )


def active_site(sites: Mapping[str, Site]) -> Site | None:
    """The active site of the newest epoch; None where none responds."""
    name = newest_active(controls(sites))
    return None if name is None else sites[name]
