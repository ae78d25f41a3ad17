"""`daybook up`, `down`, `clean`: the stack's life. A detached supervisor holds it, not the command."""

import shutil
from typing import Annotated

import typer
from rich.markup import escape

from infra.commands import detached
from infra.commands.output import fail, notes, results
from infra.embedded.errors import EmbeddedError
from infra.embedded.jars import jars_folder
from infra.embedded.journal import Journal
from infra.embedded.spark import cluster_journal
from infra.embedded.stack import NAMES, addresses, members
from infra.settings import StackSettings

app = typer.Typer()


@app.command(rich_help_panel="The stack")
def up(
    only: Annotated[
        str, typer.Option(help="Start these alone, with commas: --only broker,postgres", metavar="NAMES")
    ] = "",
) -> None:
    """Start everything, wait until it is ready, print the addresses and leave it running.

    State from an earlier `./daybook up` is still there. Ports begin at DAYBOOK_PORT_BASE (27400); a second
    checkout runs beside this one with another base. Everything is kept under .daybook (DAYBOOK_HOME).
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: not one of {', '.join(NAMES)}", param_hint="--only")
    settings = StackSettings()
    journal = Journal(settings.home)
    if journal.supervised():
        fail("the stack is up already: `./daybook status` shows it, `./daybook down` stops it")
    with detached.waiting_bar() as progress:
        task = progress.add_task("Java's jars", total=sum(len(row) for row in members(settings, names)))
        try:
            jars_folder("kafka")
        except EmbeddedError as reason:
            fail(escape(str(reason)))
        detached.start(settings, journal, "infra.embedded.supervisor", names, progress, task)
    for name, value in addresses(settings).items():
        results.print(f"{name}={value}", soft_wrap=True, markup=False)
    notes.print("The shop is open. `./daybook status` shows it, `./daybook down` closes it.")


@app.command(rich_help_panel="The stack")
def down() -> None:
    """Stop everything cleanly, a Spark cluster too; all state stays for the next `./daybook up`."""
    if not _stop_all(StackSettings()):
        notes.print("The stack is not up.")
        return
    notes.print("Stopped. The state is kept; `./daybook clean` removes it.")


@app.command(rich_help_panel="The stack")
def clean(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Stop the stack and remove all its state: log, database, logs. Fetched jars stay in the user's cache."""
    settings = StackSettings()
    if not settings.home.exists():
        notes.print("Nothing to remove.")
        return
    if not yes:
        typer.confirm(f"Remove {settings.home} with every order in it?", abort=True)
    _stop_all(settings)
    shutil.rmtree(settings.home)
    notes.print(f"Removed {settings.home}.")


def _stop_all(settings: StackSettings) -> bool:
    """False when neither the stack nor a cluster was there to stop."""
    cluster = detached.stop(cluster_journal(settings), "Stopping the Spark cluster")
    return detached.stop(Journal(settings.home), "Stopping: services first, then the stores") or cluster
