"""What a failover has set out to do, kept in a file: run again after an interruption, the command goes on."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from infra.base.settings import StackSettings
from infra.dr.steps import NotDone
from infra.log.asking import SiteSilent, ask
from infra.stack.platform import platform_of
from infra.stack.site import Site, home_settings
from services.kernel.log.control import Control

Kind = Literal["planned", "unplanned"]


@dataclass(frozen=True)
class Plan:
    """From which site to which, in which new epoch.

    `ends` is set when the mirror has stopped: by `topic/partition`, the offset of the last record at the new
    site before its own writes; from there the other direction begins.
    """

    kind: Kind
    source: str
    target: str
    epoch: int
    ends: dict[str, int] | None = None


class PlanFile:
    """The plan under way, if any. Written as a whole, removed at the end."""

    def __init__(self, settings: StackSettings) -> None:
        self._file: Path = home_settings(settings).home / "failover.json"

    def read(self) -> Plan | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Plan)
        except FileNotFoundError:
            return None

    def write(self, plan: Plan) -> Plan:
        fresh = self._file.with_suffix(".fresh")
        fresh.write_bytes(msgspec.json.encode(plan))
        fresh.replace(self._file)
        return plan

    def with_ends(self, plan: Plan, ends: dict[tuple[str, int], int]) -> Plan:
        named = {f"{topic}/{number}": offset for (topic, number), offset in ends.items()}
        return self.write(replace(plan, ends=named))

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)


def split_place(place: str) -> tuple[str, int]:
    """`topic/partition` in its parts."""
    topic, _, number = place.rpartition("/")
    return topic, int(number)


def both_sites(settings: StackSettings) -> dict[str, Site]:
    """Raises NotDone where there is one site only."""
    sites = dict(platform_of(settings).sites())
    if len(sites) != 2:
        raise NotDone("this stack has one site: `./daybook up --sites 2` starts two")
    return sites


def controls(sites: Mapping[str, Site]) -> dict[str, Control | None]:
    """What each site's own broker says; None where it is silent."""
    return dict(zip(sites, hear(*(site.bootstrap for site in sites.values())), strict=True))


def hear(*bootstraps: str) -> list[Control | None]:
    """`heard` of each, at the same time: a silent one is waited for only once."""
    with ThreadPoolExecutor(len(bootstraps)) as pool:
        return list(pool.map(heard, bootstraps))


def heard(bootstrap: str) -> Control | None:
    """What the broker at this address says of its site; None where it is silent."""
    try:
        return ask(bootstrap)
    except SiteSilent:
        return None


def find_target(settings: StackSettings, to: str) -> tuple[Site, Site]:
    """The site to promote and the other: `to`, or else the one that is passive. Raises NotDone."""
    sites = both_sites(settings)
    if not to:
        passive = [
            name for name, control in controls(sites).items() if control and control.role.role == "passive"
        ]
        if len(passive) != 1:
            said = "both sites say that they are passive" if passive else "no passive site answers"
            raise NotDone(f"{said}: name the site that is to become active with --to")
        to = passive[0]
    if to not in sites:
        raise NotDone(f"there is no site {to}")
    other = next(site for name, site in sites.items() if name != to)
    return sites[to], other
