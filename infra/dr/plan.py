"""A failover's steps as an operator sees them, and the two sites that it is about."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from infra.base.errors import DaybookError
from infra.base.settings import StackSettings
from infra.log.control import SiteSilent, read_site
from infra.stack.platform import platform_of
from infra.stack.site import Site
from services.kernel.log.control import Control

Show = Callable[[str], None]


class NotDone(DaybookError):
    """A failover cannot start, or a step did not finish; the text says why and what to do."""


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


def split_partition(partition: str) -> tuple[str, int]:
    """`topic/partition` in its parts."""
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def both_sites(settings: StackSettings) -> dict[str, Site]:
    """Raises NotDone where there is one site only."""
    sites = dict(platform_of(settings).sites())
    if len(sites) != 2:
        raise NotDone("this stack has one site: `./daybook up --sites 2` starts two")
    return sites


def controls(sites: Mapping[str, Site]) -> dict[str, Control | None]:
    """The control records of each site, from its own broker; None where it is silent."""
    return dict(zip(sites, controls_at(*(site.bootstrap for site in sites.values())), strict=True))


def controls_at(*bootstraps: str) -> list[Control | None]:
    """`control_at` of each, at the same time: several silent ones cost one timeout."""
    with ThreadPoolExecutor(len(bootstraps)) as pool:
        return list(pool.map(control_at, bootstraps))


def control_at(bootstrap: str) -> Control | None:
    """The control records at this address; None where the broker is silent."""
    try:
        return read_site(bootstrap)
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
