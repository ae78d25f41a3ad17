"""`daybook up`, `down`, `clean`: the stack's life. A detached supervisor holds it, not the command."""

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Annotated

import psutil
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from infra.commands.output import fail, notes, results
from infra.embedded.errors import EmbeddedError
from infra.embedded.jars import jars_folder
from infra.embedded.journal import Journal, Phase, StackState
from infra.embedded.stack import NAMES, addresses, members
from infra.settings import ROOT, StackSettings

app = typer.Typer()
POLL_SECONDS = 0.1
STOP_SECONDS = 120


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
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=notes
    ) as progress:
        task = progress.add_task("Java's jars", total=sum(len(row) for row in members(settings, names)))
        try:
            jars_folder("kafka")
        except EmbeddedError as reason:
            fail(escape(str(reason)))
        state = _started(journal, _spawn(settings, names), progress, task)
    if state.phase is not Phase.RUNNING:
        fail(f"{escape(state.failure or 'stopped while starting')}\nLogs are in {settings.logs}")
    for name, value in addresses(settings).items():
        results.print(f"{name}={value}", soft_wrap=True, markup=False)
    notes.print("The shop is open. `./daybook status` shows it, `./daybook down` closes it.")


@app.command(rich_help_panel="The stack")
def down() -> None:
    """Stop everything cleanly; all state stays for the next `./daybook up`."""
    settings = StackSettings()
    journal = Journal(settings.home)
    if not _stop(journal):
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
    _stop(Journal(settings.home))
    shutil.rmtree(settings.home)
    notes.print(f"Removed {settings.home}.")


def _spawn(settings: StackSettings, names: list[str]) -> subprocess.Popen[bytes]:
    settings.logs.mkdir(parents=True, exist_ok=True)
    with (settings.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "infra.embedded.supervisor", *names],
            cwd=ROOT,
            env={**os.environ, "DAYBOOK_HOME": str(settings.home.absolute())},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _started(
    journal: Journal, supervisor: subprocess.Popen[bytes], progress: Progress, task: TaskID
) -> StackState:
    """The first state that is no longer STARTING, or the last one before the supervisor ended."""
    while True:
        ended = supervisor.poll() is not None
        state = journal.read()
        if state and state.supervisor == supervisor.pid:
            waiting = [member.name for member in state.members if not member.ready]
            progress.update(
                task,
                completed=len(state.members) - len(waiting),
                description=f"waiting for {', '.join(waiting)}" if waiting else "ready",
            )
            if state.phase in (Phase.RUNNING, Phase.FAILED, Phase.STOPPED):
                return state
        if ended:
            fail("the supervisor ended at once: see .daybook/logs/supervisor.log")
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            supervisor.send_signal(signal.SIGTERM)


def _stop(journal: Journal) -> bool:
    """Stop a living supervisor and wait for its end; False when there is none."""
    state = journal.read()
    if state is None or not journal.supervised():
        return False
    supervisor = psutil.Process(state.supervisor)
    supervisor.send_signal(signal.SIGTERM)
    with notes.status("Stopping: services first, then the stores"):
        try:
            supervisor.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            fail(f"the supervisor (pid {state.supervisor}) did not stop within {STOP_SECONDS} s")
    return True
