"""Starting and stopping a supervisor that outlives the command."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import psutil
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from infra.base.journal import Phase, StackJournal, StackState
from infra.base.settings import ROOT, StackSettings
from infra.cli.output import fail, notes
from infra.stack.embedded.housekeeping import site_storage

POLL_SECONDS = 0.1
STOP_SECONDS = 120


def waiting_bar() -> Progress:
    """How far a start is, on standard error."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=notes,
    )


def start(
    settings: StackSettings,
    journal: StackJournal,
    module: str,
    names: list[str],
    progress: Progress,
    task: TaskID,
    more: Mapping[str, str] | None = None,
) -> None:
    """Run the supervisor `module` detached, with `more` in its environment; return when all is ready, else
    fail with the reason."""
    state = _started(settings, journal, _spawn(settings, module, names, more or {}), progress, task)
    if state.phase is not Phase.RUNNING:
        progress.stop()
        fail(f"{state.failure or 'stopped while starting'}\nLogs are in {settings.logs}")


def stop(journal: StackJournal, doing: str) -> bool:
    """Stop a living supervisor and wait for its end; False when there is none."""
    state = journal.read()
    if state is None or not journal.supervised():
        return False
    supervisor = psutil.Process(state.supervisor)
    supervisor.send_signal(signal.SIGTERM)
    with notes.status(doing):
        try:
            supervisor.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            fail(f"the supervisor (pid {state.supervisor}) did not stop within {STOP_SECONDS} s")
    return True


def _spawn(
    settings: StackSettings, module: str, names: list[str], more: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    settings.logs.mkdir(parents=True, exist_ok=True)
    own = {
        "DAYBOOK_HOME": str(settings.home.absolute()),
        "DAYBOOK_PORT_BASE": str(settings.port_base),
        "DAYBOOK_SITE": settings.site,
    }
    with (settings.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, *names],
            cwd=ROOT,
            env={**os.environ, **own, **more},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _started(
    settings: StackSettings,
    journal: StackJournal,
    supervisor: subprocess.Popen[bytes],
    progress: Progress,
    task: TaskID,
) -> StackState:
    """The first state that is no longer STARTING, or the last one before the supervisor ended."""
    while True:
        ended = supervisor.poll() is not None
        state = journal.read()
        if state and state.supervisor == supervisor.pid:
            waiting = [member.name for member in state.members if not (member.ready or member.held)]
            progress.update(
                task,
                completed=len(state.members) - len(waiting),
                description=f"waiting for {', '.join(waiting)}" if waiting else "ready",
            )
            if state.phase in (Phase.RUNNING, Phase.FAILED, Phase.STOPPED):
                return state
        if ended:
            storage = site_storage(settings)
            reason = f"{storage}\n" if storage.short else ""
            fail(f"{reason}the supervisor ended at once: see {settings.logs / 'supervisor.log'}")
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            supervisor.send_signal(signal.SIGTERM)
