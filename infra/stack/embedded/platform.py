"""The platform of child processes: a supervisor for each site, and its journal."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import MappingProxyType

import psutil

from infra.base.errors import NotReady
from infra.base.journal import MemberState, Phase, StackJournal, StackState
from infra.base.settings import ROOT, StackSettings
from infra.stack.embedded.kafka import brokers_alone, kept_cluster_id
from infra.stack.embedded.supervisor import site_storage
from infra.stack.platform import Platform, SiteProcess
from infra.stack.shop import ROUTER
from infra.stack.site import AWAY, Site, peer, sites_of


class EmbeddedPlatform(Platform):
    """The processes of this machine that `daybook up` starts."""

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings

    def sites(self) -> Mapping[str, Site]:
        return sites_of(self._settings)

    def up(self, site: Site) -> bool:
        return site.journal.supervised()

    def processes(self, site: Site) -> Mapping[str, SiteProcess]:
        state, supervised = site.journal.read(), site.journal.supervised()
        processes = [
            SiteProcess(
                member.name,
                supervised and member.pid is not None,
                member.ready,
                str(member.restarts),
                member.silent_since if supervised else "",
            )
            for member in (state.members if state else ())
        ]
        return {process.name: process for process in processes}

    def start(self, site: Site, *names: str) -> None:
        if not names:
            start_supervisor(site.settings, site.journal)
        for name in names:
            site.journal.release(name)

    def stop(self, site: Site, *names: str) -> None:
        if not names:
            stop_supervisor(site.journal)
        for name in names:
            site.journal.keep_down(name)

    def scale(self, site: Site, kind: str, count: int) -> None:
        """The supervisor takes the number of slots from `site.control`, and the others from here."""
        site.journal.scale(kind, count)

    def kill(self, site: Site, name: str) -> None:
        for member in _running(site) if self.up(site) else ():
            if member.name == name:
                _signal_group(member, signal.SIGKILL)

    def kill_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        supervisor = self._signal_site(site, names, after_each, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)

    def pause_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        self._signal_site(site, names, after_each, signal.SIGSTOP)

    def resume_site(self, site: Site) -> None:
        for member in _running(site):
            _signal_group(member, signal.SIGCONT)
        os.kill(_state(site).supervisor, signal.SIGCONT)

    def has_log(self, site: Site) -> bool:
        return (site.settings.home / "broker").is_dir()

    def broker_alone(self, site: Site) -> AbstractContextManager[str]:
        settings, other = site.settings, peer(site.settings)
        if other is not None and other.settings.brokers > settings.brokers and not self.has_log(site):
            kept_cluster_id(settings.home)  # an empty machine becomes what the other site is
        return brokers_alone(settings)

    def lose_disks(self, site: Site, kept: Path) -> None:
        nodes = [*site.settings.nodes("broker"), *site.settings.nodes("controller")]
        for store in ("postgres", *reversed(nodes)):  # what `has_log` looks at goes last
            if (site.settings.home / store).exists():
                shutil.move(site.settings.home / store, kept / store)

    def destroy(self, site: Site) -> None:
        for entry in site.settings.home.iterdir():
            if entry.name in (AWAY, ROUTER, "drills"):  # another machine's, or no site's
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    @staticmethod
    def _signal_site(
        site: Site, names: Sequence[str], after_each: Callable[[], None], number: signal.Signals
    ) -> int:
        """Signal the supervisor's children, while it is paused. Returns its pid.

        Otherwise it would restart what dies, and at its own death Linux would stop its children in order.
        """
        supervisor, running = _state(site).supervisor, {member.name: member for member in _running(site)}
        os.kill(supervisor, signal.SIGSTOP)
        for member in filter(None, map(running.get, names)):
            _signal_group(member, number)
            after_each()
        return supervisor


def _state(site: Site) -> StackState:
    """The last state of the running supervisor. Raises NotReady without one."""
    state = site.journal.running()
    if state is None:
        raise NotReady(f"{site.name} does not run")
    return state


def _running(site: Site) -> list[MemberState]:
    return [member for member in _state(site).members if member.pid is not None]


def _signal_group(member: MemberState, number: signal.Signals) -> None:
    assert member.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(member.pid, number)


POLL_SECONDS = 0.1
STOP_SECONDS = 120
SITE_SUPERVISOR = "infra.stack.embedded.supervisor"


def start_supervisor(
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


def stop_supervisor(journal: StackJournal) -> bool:
    """Stop a running supervisor and wait for its end. Returns False when there is none. Raises NotReady."""
    state = journal.running()
    if state is None:
        return False
    supervisor = psutil.Process(state.supervisor)
    supervisor.send_signal(signal.SIGTERM)
    supervisor.resume()  # a paused process would take the signal only when it runs again
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
        "DAYBOOK_PRINCIPAL": "admin",
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
