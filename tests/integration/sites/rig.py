"""Two sites as `daybook up --sites 2` starts them, with the members that a test names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infra.base.settings import ROOT, StackSettings
from infra.base.waiting import wait_until
from infra.stack.site import Site, sites_of
from tests.e2e.shop import NO_MORE
from tests.ports import free_base

SECONDS = 120


class TwoSites:
    """The stack's command and its two sites."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.settings = StackSettings(home=folder, port_base=free_base())
        self._environment = {
            **os.environ,
            **environment,
            "DAYBOOK_HOME": str(folder),
            "DAYBOOK_PORT_BASE": str(self.settings.port_base),
        }

    @property
    def home(self) -> Site:
        return sites_of(self.settings)["home"]

    @property
    def away(self) -> Site:
        return sites_of(self.settings)["away"]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "infra.cli", *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def member(self, site: Site, name: str) -> tuple[int | None, bool]:
        """Its pid and whether it is ready."""
        state = site.journal.read()
        assert state is not None
        state_of = next(member for member in state.members if member.name == name)
        return state_of.pid, state_of.ready


@contextmanager
def two_sites(folder: Path, *names: str, environment: Mapping[str, str] = NO_MORE) -> Iterator[TwoSites]:
    """Up until the end of the block."""
    stack = TwoSites(folder, environment)
    try:
        up = stack.run("up", "--sites", "2", *(("--only", ",".join(names)) if names else ()))
        assert up.returncode == 0, up.stderr
        yield stack
    finally:
        stack.run("down")


def eventually(true: Callable[[], bool], seconds: float = SECONDS) -> None:
    wait_until(true, "the sites become so", seconds)
