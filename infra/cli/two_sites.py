"""Starting the sites that a command is about: both, unless `--site` named one."""

import os
import threading
from collections.abc import Sequence

from infra.base.settings import StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.cli import detached
from infra.cli.output import fail, notes
from infra.stack.embedded.opening import TOLD_ACTIVE
from infra.stack.embedded.stack import members
from infra.stack.site import Site, sites_of

MIRROR = "mirror"
MIRROR_SECONDS = 90.0
POLL_SECONDS = 0.2
ONE_SITE = "DAYBOOK_ONE_SITE"  # set by the root option --site


def here(settings: StackSettings) -> list[Site]:
    """What `up`, `down` and `status` are about; away first, so that it stops first."""
    sites = sites_of(settings)
    chosen = [sites[settings.site]] if os.environ.get(ONE_SITE) else list(sites.values())
    return list(reversed(chosen))


def to_start(settings: StackSettings) -> list[Site]:
    """The sites that are not up, home first. Fails where there is none."""
    down = [site for site in reversed(here(settings)) if not site.journal.supervised()]
    if not down:
        fail("the stack is already running: `./daybook status` shows it, `./daybook down` stops it")
    if len(sites_of(settings)) > 1:
        notes.print(f"Two sites: starting {' and '.join(site.name for site in down)}.")
    return down


def await_mirror(settings: StackSettings) -> None:
    """Wait until the mirror copies: a site that dies before that takes everything with it."""
    site = next((site for site in here(settings) if _mirror_ready(site) is not None), None)
    if site is None:
        return
    try:
        with notes.status(f"waiting for the mirror into {site.name}"):
            wait_until(lambda: _mirror_ready(site), f"the mirror into {site.name} copies", MIRROR_SECONDS)
    except TooLate:
        notes.print(f"The mirror into {site.name} does not copy yet: `./daybook sites` shows when it does.")


def _mirror_ready(site: Site) -> bool | None:
    """Whether the site's mirror copies; None where it has none to run."""
    state = site.journal.read()
    if state is None or not site.journal.supervised() or MIRROR in site.journal.held():
        return None
    return next((member.ready for member in state.members if member.name == MIRROR), None)


def start(sites: Sequence[Site], names: list[str], told: str) -> None:
    """Start each in its own supervisor, at the same time; return when all are ready, else fail."""
    failed: list[BaseException] = []
    with detached.waiting_bar() as progress:

        def one(site: Site) -> None:
            task = progress.add_task(site.name, total=sum(len(row) for row in members(site.settings, names)))
            more = {TOLD_ACTIVE: "1"} if site.name == told else {}
            try:
                detached.start(
                    site.settings,
                    site.journal,
                    "infra.stack.embedded.supervisor",
                    names,
                    progress,
                    task,
                    more,
                )
            except BaseException as error:  # typer.Exit: the reason was printed
                failed.append(error)

        threads = [threading.Thread(target=one, args=(site,)) for site in sites[1:]]
        for thread in threads:
            thread.start()
        one(sites[0])
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
