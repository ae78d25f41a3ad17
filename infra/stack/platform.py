"""The port through which sites and drills act on a shop's processes, wherever they run.

Two adapters implement it: child processes of this machine (`embedded/platform.py`) and containers
(`compose/platform.py`). A process has the same name on both: those of `infra/stack/shop.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infra.base.settings import StackSettings
from infra.stack.site import Site


@dataclass(frozen=True)
class SiteProcess:
    """One process of a site. `life` changes with each start. `silent_since`: it runs and does not respond."""

    name: str
    running: bool
    ready: bool
    life: str
    silent_since: str = ""


class Platform(Protocol):
    """Names are those of processes; without any, a method acts on the whole site."""

    def sites(self) -> Mapping[str, Site]:
        """Every site, by name."""

    def up(self, site: Site) -> bool:
        """Whether the site is kept running."""

    def processes(self, site: Site) -> Mapping[str, SiteProcess]:
        """The site's processes by name, as they are or were when it was last up."""

    def start(self, site: Site, *names: str) -> None:
        """Start the site, and return when it is ready; or let processes run that were kept down, and return at once.

        Raises DaybookError.
        """

    def stop(self, site: Site, *names: str) -> None:
        """Stop the site in order, and return when it is down; or keep processes down, over restarts too, and return
        at once. Raises DaybookError."""

    def scale(self, site: Site, kind: str, count: int) -> None:
        """Run so many processes of a kind from now on, over restarts too, and return at once. Raises DaybookError."""

    def kill(self, site: Site, name: str) -> None:
        """End a process at once, as a crash does; it is started again, unless it is kept down."""

    def kill_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        """End these at once, in this order, with their supervisor: nothing starts them again."""

    def pause_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        """Freeze these, in this order, with their supervisor."""

    def resume_site(self, site: Site) -> None:
        """Resume everything of a frozen site."""

    def has_log(self, site: Site) -> bool:
        """Whether the site has a broker's disk."""

    def broker_alone(self, site: Site) -> AbstractContextManager[str]:
        """The address of the site's broker, which runs alone until the end of the block."""

    def lose_disks(self, site: Site, kept: Path) -> None:
        """Move log and database of a site that is down to `kept`, a new folder."""

    def destroy(self, site: Site) -> None:
        """Remove everything that the machine of a site that is down has on its disks."""


def platform_of(settings: StackSettings) -> Platform:
    """The platform of the stack with these settings, of either site."""
    # Imported here: the adapters import this module, and a stack needs only one of them.
    if settings.stack == "compose":
        from infra.stack.compose.platform import ComposePlatform

        return ComposePlatform(settings)
    from infra.stack.embedded.platform import EmbeddedPlatform

    return EmbeddedPlatform(settings)
