"""The two sites under drill, driven by the commands that an operator types."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import httpx

from infra.base.errors import DaybookError
from infra.base.settings import ROOT, StackSettings
from infra.base.waiting import wait_until
from infra.dr.mirror_position import caught_up
from infra.dr.plan import controls
from infra.lab.retail.requests import Api
from infra.lab.retail.shop import NotAtRest, Shop, api_urls
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR
from infra.stack.site import Site

COMMAND_SECONDS = 900.0
REST_SECONDS = 180.0
# A drill kills sites for minutes: no order expires meanwhile.
SETTLE_SECONDS = 600


class DrillFailed(DaybookError):
    """A drill could not be held to its end; the text says what stood in its way."""


class Pair:
    """Both sites; `settings` are home's."""

    def __init__(self, settings: StackSettings) -> None:
        self.settings = settings
        self._daybook = (sys.executable, "-m", "infra.cli", "--stack", settings.stack)
        self.platform = platform_of(settings)
        self._sites: Mapping[str, Site] = {}
        self._environment = {
            **os.environ,
            "DAYBOOK_HOME": str(settings.named_home),
            "DAYBOOK_PORT_BASE": str(settings.port_base),
            "DAYBOOK_SITE": "home",
            "DAYBOOK_STACK": "embedded",
            "DAYBOOK_SETTLE_SECONDS": os.environ.get("DAYBOOK_SETTLE_SECONDS", str(SETTLE_SECONDS)),
            "COLUMNS": "160",
        }

    def start(self) -> None:
        """Two fresh sites, with a mirror that copies. Raises DrillFailed."""
        if self.settings.home.exists():
            self.run("clean", "--yes")
        self.run("up", "--sites", "2")
        active, passive, _ = self.roles()
        self.await_mirrored(active, passive)

    @property
    def sites(self) -> Mapping[str, Site]:
        if len(self._sites) < 2:
            self._sites = self.platform.sites()
        return self._sites

    def other(self, site: Site) -> Site:
        return next(each for each in self.sites.values() if each.name != site.name)

    def urls(self) -> dict[str, Mapping[Api, str]]:
        """The APIs of each site."""
        return {name: api_urls(site.settings) for name, site in self.sites.items()}

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`./daybook …`, under way; nobody reads what it prints."""
        return subprocess.Popen(
            [*self._daybook, *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def run(self, *arguments: str, answers: str = "") -> str:
        """What `./daybook …` prints; `answers` is what is typed into it, with line ends.

        Raises DrillFailed, with all that it said, unless its exit code is 0.
        """
        process = subprocess.run(
            [*self._daybook, *arguments],
            cwd=ROOT,
            env=self._environment,
            input=answers,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if process.returncode != 0:
            said = f"{process.stdout}{process.stderr}".strip()
            raise DrillFailed(f"`daybook {' '.join(arguments)}` ended with {process.returncode}:\n{said}")
        return process.stdout

    def roles(self) -> tuple[Site, Site, int]:
        """The active site, the passive one, and the epoch. Raises DrillFailed unless both say so."""
        said = controls(self.sites)
        active = [name for name, control in said.items() if control and control.role.role == "active"]
        passive = [name for name, control in said.items() if control and control.role.role == "passive"]
        if len(active) != 1 or len(passive) != 1:
            raise DrillFailed(f"no active and passive site: {active} active, {passive} passive")
        control = said[active[0]]
        assert control is not None
        return self.sites[active[0]], self.sites[passive[0]], control.role.epoch

    def await_mirrored(self, active: Site, passive: Site, seconds: float = REST_SECONDS) -> None:
        """Wait until a mirror copies and is exactly caught up. Raises DrillFailed."""
        wait_until(
            lambda: copying(passive) and caught_up(active.link, passive.bootstrap, active.name),
            f"the mirror into {passive.name} is caught up",
            seconds,
            later=(TimeoutError,),
            error=DrillFailed,
        )

    def await_rest(self, site: Site) -> None:
        """Wait until conversations and read models of a site have come to rest. Raises DrillFailed."""
        try:
            with Shop(api_urls(site.settings)) as shop:
                shop.await_rest(REST_SECONDS, lambda _: None)
        except (NotAtRest, httpx.HTTPError) as left:
            raise DrillFailed(f"{site.name} does not come to rest: {left!r}") from left


def copying(passive: Site) -> bool:
    """Whether a canary has come through the site's mirror lately."""
    mirror = platform_of(passive.settings).processes(passive).get(MIRROR)
    return mirror is not None and mirror.ready
