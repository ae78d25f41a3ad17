"""Starting and stopping a supervisor that outlives the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import psutil

from infra.base.errors import NotReady
from infra.base.journal import Phase, StackJournal, StackState
from infra.base.settings import ROOT, StackSettings
from infra.stack.embedded.housekeeping import site_storage

POLL_SECONDS = 0.1
STOP_SECONDS = 120
SITE_SUPERVISOR = "infra.stack.embedded.supervisor"


def start(
    settings: StackSettings,
    journal: StackJournal,
    module: str = SITE_SUPERVISOR,
    names: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
    progress: Callable[[StackState], None] = lambda _: None,
) -> None:
    """Run the supervisor `module` detached, with `more` in its environment; return when all is ready.

    `progress` gets each state meanwhile. Raises NotReady with the reason.
    """
    state = _started(settings, journal, _spawn(settings, module, names, more), progress)
    if state.phase is not Phase.RUNNING:
        raise NotReady(f"{state.failure or 'stopped while starting'}\nLogs are in {settings.logs}")


def stop(journal: StackJournal) -> bool:
    """Stop a living supervisor and wait for its end; False when there is none. Raises NotReady."""
    state = journal.read()
    if state is None or not journal.supervised():
        return False
    supervisor = psutil.Process(state.supervisor)
    supervisor.send_signal(signal.SIGTERM)
    try:
        supervisor.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        raise NotReady(
            f"the supervisor (pid {state.supervisor}) did not stop within {STOP_SECONDS} s"
        ) from None
    return True


def _spawn(
    settings: StackSettings, module: str, names: Sequence[str], more: Mapping[str, str]
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
    progress: Callable[[StackState], None],
) -> StackState:
    """The first state that is no longer STARTING, or the last one before the supervisor ended."""
    while True:
        ended = supervisor.poll() is not None
        state = journal.read()
        if state and state.supervisor == supervisor.pid:
            progress(state)
            if state.phase in (Phase.RUNNING, Phase.FAILED, Phase.STOPPED):
                return state
        if ended:
            storage = site_storage(settings)
            reason = f"{storage}\n" if storage.short else ""
            raise NotReady(f"{reason}the supervisor ended at once: see {settings.logs / 'supervisor.log'}")
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            supervisor.send_signal(signal.SIGTERM)
