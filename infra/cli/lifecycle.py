"""`daybook up`, `down`, `clean`: the stack, which a detached supervisor keeps running."""

import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from infra.base.journal import StackJournal, StackState
from infra.base.settings import CLUSTER, INSECURE, StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.cli import in_containers
from infra.cli.output import fail, notes, results
from infra.dr.plan import Entrance, entrance
from infra.stack.embedded.java import jars_folder
from infra.stack.embedded.kafka import kept_cluster_id
from infra.stack.embedded.platform import start_supervisor, stop_supervisor
from infra.stack.embedded.postgres import put_aside
from infra.stack.embedded.router import router_journal
from infra.stack.embedded.spark import cluster_journal
from infra.stack.embedded.stack import FORCE_ACTIVE, database_place, members
from infra.stack.embedded.supervisor import site_storage
from infra.stack.security import prepare_identities
from infra.stack.shop import MIRROR, NAMES, ROUTER, SITE_NAMES, addresses
from infra.stack.site import AWAY, HOME, Site, as_started, away_settings, home_settings, peer, sites_of
from infra.stack.storage import no_room_to_start

app = typer.Typer()


@app.command()
def up(
    only: Annotated[
        str, typer.Option(help="Start only these processes: --only broker,postgres", metavar="NAMES")
    ] = "",
    sites: Annotated[int, typer.Option(min=1, max=2, help="2: also start a second site, from now on.")] = 1,
    brokers: Annotated[int, typer.Option(min=1, max=CLUSTER, help="3: new sites are clusters of three.")] = 1,
    active: Annotated[
        str, typer.Option(metavar="home|away", help="With --force: start this site as the active one.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Do not contact the other site first.")] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS, users or tokens: anyone on this machine may use it.")
    ] = False,
) -> None:
    """Start everything, wait until it is ready, print the addresses and leave it running.

    State from an earlier `./daybook up` is kept. Ports start at DAYBOOK_PORT_BASE (27400); a second
    checkout runs beside this one with another base. Everything is kept under .daybook (DAYBOOK_HOME).
    """
    settings = StackSettings()
    if brokers not in (1, CLUSTER):
        raise typer.BadParameter("1 or 3", param_hint="--brokers")
    if settings.stack == "compose":
        in_containers.up(settings, sites, brokers, insecure=insecure)
        _show_open(settings)
        return
    names, forced = _chosen(settings, only, sites), _forced(settings, active, force, sites)
    with Site(home_settings(settings)).journal.sole_change("up"):
        pass  # a command that changes sites may be moving their disks
    _decide(settings, sites, brokers, insecure=insecure)
    if peer(settings) and not names:
        _start_router(home_settings(settings))
    starting = to_start(settings)
    jars_folder("kafka")
    for site in starting:
        _require_room(site)
        _put_old_database_aside(site)
    start_sites(starting, names, forced)
    await_mirror(settings)
    _show_open(settings)
    for site in starting:
        if (storage := site_storage(site.settings)).short:
            notes.print(f"But {storage}.")


def _decide(settings: StackSettings, sites: int, brokers: int, *, insecure: bool) -> None:
    """What a site is from its first start on."""
    if sites == 2:
        _second_site(settings)
    _clusters(settings, brokers)
    _security(settings, insecure=insecure)


def _require_room(site: Site) -> None:
    """A first start that fails on a full disk would leave an incomplete log or database."""
    if reason := no_room_to_start(site_storage(site.settings).folders):
        fail(f"{reason}. Make room, then `./daybook up`.")


def _put_old_database_aside(site: Site) -> None:
    if kept := put_aside(database_place(site.settings)):
        notes.print(
            f"The database is of another PostgreSQL version and was moved to {kept}; the read models are "
            "rebuilt from the log. Repeat your decisions of `./daybook parked skip`. Remove the "
            "folder when you no longer need it."
        )


def _show_open(settings: StackSettings) -> None:
    reach = shop_entrance(settings)
    for name, value in reach.addresses.items():
        results.print(f"{name}={re.sub(':[^:/@]+@', '@', value)}")  # without the password: `env` has it
    if reach.about:
        notes.print(reach.about)
    notes.print("The shop is running. `./daybook status` shows it, `./daybook down` stops it.")


@app.command()
def down() -> None:
    """Stop everything, also a Spark cluster. The state is kept for the next `./daybook up`."""
    settings = StackSettings()
    if settings.stack == "compose":
        in_containers.down(settings)
        return
    if not _stop_all(settings):
        notes.print("The stack is not running.")
        return
    notes.print("Stopped. The state is kept; `./daybook clean` removes it.")


@app.command()
def clean(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Stop the stack and remove all its state: events, database, logs. Keeps downloaded jars in the user's cache."""
    settings = StackSettings()
    if not settings.home.exists():
        notes.print("Nothing to remove.")
        return
    if os.environ.get(ONE_SITE) and peer(settings):  # the folder of home has that of away in it
        fail("clean removes both sites: omit --site, or type `./daybook site rebuild NAME` to make one anew")
    if not yes:
        typer.confirm(f"Remove {settings.home} with every order in it?", abort=True)
    with Site(home_settings(settings)).journal.sole_change("clean"):
        (in_containers.clean if settings.stack == "compose" else _remove)(settings)


def _remove(settings: StackSettings) -> None:
    _stop_all(settings)
    sockets = [database_place(site.settings).socket for site in here(settings)]
    try:
        shutil.rmtree(settings.home)
    except OSError as error:  # another command writes there, or removes it too
        fail(f"{error.filename} could not be removed ({error.strerror}): type the command again")
    for socket in sockets:  # outside of the home where its path is long
        shutil.rmtree(socket, ignore_errors=True)
    notes.print(f"Removed {settings.home}.")


def _second_site(settings: StackSettings) -> None:
    """Create the folder of away, and keep the mirror down that would copy into the active site."""
    home, here = sites_of(settings)[HOME], sites_of(settings)
    if AWAY in here:
        return
    if home.journal.supervised():
        fail("the stack is running with one site: `./daybook down` first, then `./daybook up --sites 2`")
    try:
        away_settings(settings).home.mkdir(parents=True)
    except ValidationError:
        fail("DAYBOOK_PORT_BASE is too high for a second site: its ports are 200 above")
    home.journal.keep_down(MIRROR)


def _clusters(settings: StackSettings, brokers: int) -> None:
    """Make new sites clusters, as asked or as the other site is. A log does not change from one broker to three."""
    sites = sites_of(settings).values()
    for site in sites:
        if (site.settings.home / "broker").exists():
            if brokers > site.settings.brokers:
                fail(f"{site.name} has a log of one broker: `./daybook clean` removes it, with every order")
        elif max(brokers, *(other.settings.brokers for other in sites)) > 1:
            kept_cluster_id(site.settings.home)


def _security(settings: StackSettings, *, insecure: bool) -> None:
    """Secure the sites that do not run, or not. Both sites' first certificates and passwords are the same ones."""
    sites = sites_of(settings).values()
    for site in sites:
        mark = site.settings.home / INSECURE
        if site.journal.supervised():
            if insecure != mark.exists():
                fail(
                    f"{site.name} runs {'secured' if insecure else 'with --insecure'}: `./daybook down` first"
                )
        elif insecure:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        else:
            mark.unlink(missing_ok=True)
    for site in sites:
        prepare_identities(site.settings)


def _chosen(settings: StackSettings, only: str, sites: int) -> list[str]:
    existing = (*NAMES, *(SITE_NAMES if sites == 2 or peer(settings) else ()))
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: not one of {', '.join(existing)}", param_hint="--only"
        )
    return names


def _forced(settings: StackSettings, active: str, force: bool, sites: int) -> str:
    """The site that is forced to be active; empty for none."""
    if not active and not force:
        return ""
    if active not in ((HOME, AWAY) if sites == 2 else sites_of(settings)) or not force:
        raise typer.BadParameter("name a site, and add --force", param_hint="--active")
    notes.print(
        f"{active} will not ask the other site whether it was promoted. If it was, both "
        "accept orders until they can reach each other; then this one is demoted, and what it accepted in "
        "between is lost, except in `./daybook failover report`."
    )
    return active


def _start_router(home: StackSettings) -> None:
    """It belongs to no site: it is started where it does not run, and stops with both."""
    journal = router_journal(home)
    if journal.running() is None:
        with waiting_bar() as progress:
            task = progress.add_task(ROUTER, total=1)
            start_supervisor(home, journal, ROUTER_SUPERVISOR, progress=shown(progress, task))


def _stop_all(settings: StackSettings) -> bool:
    """Whether the stack or a cluster was running."""
    cluster = stop_detached(cluster_journal(settings), "Stopping the Spark cluster")
    if peer(settings) and not os.environ.get(ONE_SITE):
        stop_detached(router_journal(settings), "Stopping the router")
    stopped = [
        stop_detached(site.journal, f"Stopping {site.name}: services first, then the stores")
        for site in here(settings)
    ]
    return any(stopped) or cluster


ROUTER_SUPERVISOR = "infra.stack.embedded.router"
MIRROR_SECONDS = 90.0
ONE_SITE = "DAYBOOK_ONE_SITE"  # set by the root option --site


def here(settings: StackSettings) -> list[Site]:
    """The sites of `up`, `down` and `status`; away first, so that it stops first."""
    sites = sites_of(settings)
    chosen = [sites[settings.site]] if os.environ.get(ONE_SITE) else list(sites.values())
    return list(reversed(chosen))


def client_settings() -> StackSettings:
    """Home's settings, or those of the site that --site names, with the ports of the running stack.

    Ends the command where nothing runs.
    """
    running = [started for site in here(StackSettings()) if (started := as_started(site.settings))]
    if not running:
        fail("the stack is not running: `./daybook up` starts it")
    return running[0] if os.environ.get(ONE_SITE) else home_settings(running[0])


def shop_entrance(settings: StackSettings) -> Entrance:
    """The addresses for clients: of both sites together, or of the site that --site names."""
    return Entrance(addresses(settings)) if os.environ.get(ONE_SITE) else entrance(settings)


def to_start(settings: StackSettings) -> list[Site]:
    """The sites that are not running, home first. Ends the command where there is none."""
    down = [site for site in reversed(here(settings)) if not site.journal.supervised()]
    if not down:
        fail("the stack is already running: `./daybook status` shows it, `./daybook down` stops it")
    if len(sites_of(settings)) > 1:
        notes.print(f"Two sites: starting {' and '.join(site.name for site in down)}.")
    return down


def await_mirror(settings: StackSettings) -> None:
    """Wait until the mirror copies: before that, the loss of a site loses everything."""
    site = next((site for site in here(settings) if _mirror_ready(site) is not None), None)
    if site is None:
        return
    try:
        with notes.status(f"waiting for the mirror into {site.name}"):
            wait_until(lambda: _mirror_ready(site), f"the mirror into {site.name} copies", MIRROR_SECONDS)
    except TooLate:
        notes.print(f"The mirror into {site.name} does not copy yet: `./daybook sites` shows when it does.")


def _mirror_ready(site: Site) -> bool | None:
    """Whether the site's mirror copies; None where it should not run."""
    state = site.journal.running()
    if state is None or MIRROR in site.journal.held():
        return None
    return next((member.ready for member in state.members if member.name == MIRROR), None)


def start_sites(sites: Sequence[Site], names: list[str], forced: str) -> None:
    """Start each in its own supervisor, at the same time, and return when all are ready. Raises NotReady."""
    failed: list[BaseException] = []
    with waiting_bar() as progress:

        def start_site(site: Site) -> None:
            task = progress.add_task(site.name, total=sum(len(row) for row in members(site.settings, names)))
            more = {FORCE_ACTIVE: "1"} if site.name == forced else {}
            try:
                start_supervisor(
                    site.settings, site.journal, names=names, more=more, progress=shown(progress, task)
                )
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=start_site, args=(site,)) for site in sites[1:]]
        for thread in threads:
            thread.start()
        start_site(sites[0])
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def waiting_bar() -> Progress:
    """The progress of a start, on standard error."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=notes,
    )


def stop_detached(journal: StackJournal, doing: str) -> bool:
    """Stop a running supervisor and wait for its end. Returns False when there is none. Raises NotReady."""
    with notes.status(doing):
        return stop_supervisor(journal)


def shown(progress: Progress, task: TaskID) -> Callable[[StackState], None]:
    """What shows a supervisor's states as the progress of this task."""

    def show(state: StackState) -> None:
        waiting = [member.name for member in state.members if not (member.ready or member.held)]
        progress.update(
            task,
            completed=len(state.members) - len(waiting),
            description=f"waiting for {', '.join(waiting)}" if waiting else "ready",
        )

    return show
