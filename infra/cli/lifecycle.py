"""`daybook up`, `down`, `clean`: the stack's life. A detached supervisor holds it, not the command."""

import shutil
from typing import Annotated

import typer
from pydantic import ValidationError

from infra.base.settings import StackSettings
from infra.cli import detached, in_containers, two_sites
from infra.cli.output import fail, notes, results
from infra.stack.embedded.housekeeping import site_storage
from infra.stack.embedded.jars import jars_folder
from infra.stack.embedded.postgres import PostgresPlace, put_aside
from infra.stack.embedded.spark import cluster_journal
from infra.stack.shop import NAMES, SITE_NAMES, addresses
from infra.stack.site import AWAY, HOME, Site, away_settings, peer, sites_of
from infra.stack.storage import no_room_to_start

app = typer.Typer()


@app.command(rich_help_panel="The stack")
def up(
    only: Annotated[
        str, typer.Option(help="Start only these processes: --only broker,postgres", metavar="NAMES")
    ] = "",
    sites: Annotated[int, typer.Option(min=1, max=2, help="2: also start a second site, from now on.")] = 1,
    active: Annotated[
        str, typer.Option(metavar="home|away", help="With --force: start this site as the active one.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Do not contact the other site first.")] = False,
) -> None:
    """Start everything, wait until it is ready, print the addresses and leave it running.

    State from an earlier `./daybook up` is kept. Ports start at DAYBOOK_PORT_BASE (27400); a second
    checkout runs beside this one with another base. Everything is kept under .daybook (DAYBOOK_HOME).
    """
    settings = StackSettings()
    if settings.stack == "compose":
        in_containers.up(settings, sites)
        _show_open(settings)
        return
    if sites == 2:
        _second_site(settings)
    names = _chosen(settings, only)
    told = _told(settings, active, force)
    starting = two_sites.to_start(settings)
    jars_folder("kafka")
    for site in starting:
        _require_room(site)
        _put_old_database_aside(site)
    two_sites.start(starting, names, told)
    two_sites.await_mirror(settings)
    _show_open(settings)
    for site in starting:
        if (storage := site_storage(site.settings)).short:
            notes.print(f"But {storage}.")


def _require_room(site: Site) -> None:
    """A first start that is cut short by a full disk would leave half a log or half a database."""
    if reason := no_room_to_start(site_storage(site.settings).folders):
        fail(f"{reason}. Make room, then `./daybook up`.")


def _put_old_database_aside(site: Site) -> None:
    place = PostgresPlace(site.settings.home / "postgres", site.settings.port("postgres"))
    if kept := put_aside(place):
        notes.print(
            f"The database is of another PostgreSQL version and was moved to {kept}; the read models are "
            "rebuilt from the log. Repeat your decisions of `./daybook parked skip`. Remove the "
            "folder when you no longer need it.",
        )


def _show_open(settings: StackSettings) -> None:
    for name, value in addresses(settings).items():
        results.print(f"{name}={value}")
    notes.print("The shop is running. `./daybook status` shows it, `./daybook down` stops it.")


@app.command(rich_help_panel="The stack")
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


@app.command(rich_help_panel="The stack")
def clean(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Stop the stack and remove all its state: events, database, logs. Keeps downloaded jars in the user's cache."""
    settings = StackSettings()
    if not settings.home.exists():
        notes.print("Nothing to remove.")
        return
    if not yes:
        typer.confirm(f"Remove {settings.home} with every order in it?", abort=True)
    if settings.stack == "compose":
        in_containers.clean(settings)
        return
    _stop_all(settings)
    shutil.rmtree(settings.home)
    notes.print(f"Removed {settings.home}.")


def _second_site(settings: StackSettings) -> None:
    """Make the place of away, and hold the mirror where it would copy into the active site."""
    home, here = sites_of(settings)[HOME], sites_of(settings)
    if AWAY in here:
        return
    if home.journal.supervised():
        fail("the stack is running with one site: `./daybook down` first, then `./daybook up --sites 2`")
    try:
        away_settings(settings).home.mkdir(parents=True)
    except ValidationError:
        fail("DAYBOOK_PORT_BASE is too high for a second site: its ports are 200 above")
    home.journal.hold("mirror")


def _chosen(settings: StackSettings, only: str) -> list[str]:
    known = (*NAMES, *(SITE_NAMES if peer(settings) else ()))
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: not one of {', '.join(known)}", param_hint="--only")
    return names


def _told(settings: StackSettings, active: str, force: bool) -> str:
    """The site that is told to be active; empty for none."""
    if not active and not force:
        return ""
    if active not in sites_of(settings) or not force:
        raise typer.BadParameter("name a site, and add --force", param_hint="--active")
    notes.print(
        f"{active} will not ask the other site whether it was promoted. If it was, both "
        "accept orders until they can reach each other; then this one is demoted, and what it accepted in "
        "between is lost, except in `./daybook failover report`."
    )
    return active


def _stop_all(settings: StackSettings) -> bool:
    """False when neither the stack nor a cluster was there to stop."""
    cluster = detached.stop(cluster_journal(settings), "Stopping the Spark cluster")
    stopped = [
        detached.stop(site.journal, f"Stopping {site.name}: services first, then the stores")
        for site in two_sites.here(settings)
    ]
    return any(stopped) or cluster
