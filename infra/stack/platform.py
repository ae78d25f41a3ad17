"""What keeps a shop's processes running, and what can be done to them: the one way for sites and drills.

Two adapters do it: child processes of this machine (`embedded/platform.py`) and containers
(`compose/platform.py`). A process has the same name on both: those of `infra/stack/shop.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infra.base.settings import StackSettings
from infra.stack.site import Site


@dataclass(frozen=True)
class SiteProcess:
    """One process of a site. `life` changes with each start."""

    name: str
    running: bool
    ready: bool
    life: str


class Platform(Protocol):
    """Names are a process's; without any the whole site is meant."""

    def sites(self) -> Mapping[str, Site]:
        """Every site, by name."""

    def up(self, site: Site) -> bool:
        """Whether somebody keeps the site running."""

    def processes(self, site: Site) -> Mapping[str, SiteProcess]:
        """What is kept running at the site, or was when it was last up, by name."""

    def held(self, site: Site) -> Collection[str]:
        """The processes that somebody wants down, also while the site is."""

    def start(self, site: Site, *names: str) -> None:
        """Bring the site up, and return when it is ready; or let processes run that were held, and return at
        once. Raises DaybookError."""

    def stop(self, site: Site, *names: str) -> None:
        """Stop the site in order, and return when it is down; or hold processes down, over restarts of the
        site too, and return at once. Raises DaybookError."""

    def kill(self, site: Site, name: str) -> None:
        """End a process at once, as a crash does; it is started again, unless it is held."""

    def kill_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        """End these at once, in this order, and who keeps them: nothing starts them again."""

    def pause_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        """Freeze these, in this order, and who keeps them."""

    def resume_site(self, site: Site) -> None:
        """Let everything of a frozen site go on."""

    def has_log(self, site: Site) -> bool:
        """Whether the site has a broker's disk."""

    def broker_alone(self, site: Site) -> AbstractContextManager[str]:
        """The address of the site's broker, which runs without the site until the end of the block."""

    def lose_disks(self, site: Site, kept: Path) -> None:
        """Take log and database away from a site that is down; `kept`, a new folder, has them as they were."""


def platform_of(settings: StackSettings) -> Platform:
    """The platform of the stack that these settings, of either site, are of."""
    # Here and not above: an adapter needs the port, and a stack needs one adapter alone.
    if settings.stack == "compose":
        from infra.stack.compose.platform import ComposePlatform

        return ComposePlatform(settings)
    from infra.stack.embedded.platform import EmbeddedPlatform

    return EmbeddedPlatform(settings)
