"""`daybook up`'s process: starts the stack's members, restarts those that die, stops them in order.

`python -m infra.stack.embedded.supervisor [NAME…]` runs it in the foreground; `daybook up` starts it detached.
`infra/stack/embedded/spark.py` runs the cluster in the same way.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from infra.base.errors import DaybookError, NotReady
from infra.base.journal import Phase, StackJournal, StackState
from infra.base.ports import require_free
from infra.base.settings import StackSettings
from infra.stack.embedded.child import Child
from infra.stack.embedded.housekeeping import ENOUGH, Housekeeping
from infra.stack.embedded.opening import open_site
from infra.stack.embedded.stack import Member, log_file, members
from infra.stack.embedded.watched import Watched, broker_was_away, ended_as

POLL_SECONDS = 0.1
# A process that does not say it is alive this often in a row is killed: a frozen worker's open transaction
# holds up every reader.
LIVE_SECONDS = 3.0
SILENT_PROBES = 5


class StopAsked(Exception):
    """A signal asked for the end while the stack was starting."""


class Supervisor:
    """Runs one stack until it is asked to stop; `rows` start in order and stop in reverse.

    `broker_was_away` tells whether the broker was away lately.
    """

    def __init__(
        self,
        settings: StackSettings,
        pid: int,
        journal: StackJournal,
        rows: Sequence[Sequence[Member]],
        broker_was_away: Callable[[], bool] = lambda: False,
    ) -> None:
        self._broker_was_away = broker_was_away
        self._settings = settings
        self._pid = pid
        self._journal = journal
        self._rows = [[Watched(member) for member in row] for row in rows]
        self._phase = Phase.STARTING
        self._stop_asked = False
        self._written: StackState | None = None
        self._house = Housekeeping(settings, [watched.member.name for watched in self._all()])

    def ask_to_stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self._stop_asked = True

    def run(self) -> int:
        """Start, watch, stop. The exit code: 0 after a stop that was asked for, 1 after a failed start."""
        failure = ""
        self._house.start()
        try:
            self._start()
            self._watch()
        except StopAsked:
            self._journal.record("stack", "interrupted", "asked to stop while starting")
        except (DaybookError, OSError) as reason:
            self._house.storage.measure()
            failure = f"{reason}\n{self._house.storage}" if self._house.storage.short else str(reason)
            self._journal.record("stack", "failed", failure)
        finally:
            self._house.stop()
            self._stop()
        self._phase = Phase.FAILED if failure else Phase.STOPPED
        self._publish(failure)
        return 1 if failure else 0

    def _start(self) -> None:
        self._publish()
        for watched in self._all():
            for port in watched.member.ports:
                require_free(port, watched.member.name, "DAYBOOK_PORT_BASE")
        for row in self._rows:
            for watched in row:
                self._first_launch(watched)
            self._await_ready([watched for watched in row if watched.member.awaited and not watched.held])
            if any(watched.member.name == "broker" for watched in row):
                open_site(self._settings, self._journal, lambda: self._stop_asked)
                if self._stop_asked:
                    raise StopAsked
                self._house.site_opened(self._settings.kafka)
        self._phase = Phase.RUNNING
        self._journal.record("stack", "running")

    def _first_launch(self, watched: Watched) -> None:
        """Raises DaybookError only where the stack is no stack without this member."""
        watched.held = watched.member.name in self._journal.held()
        if watched.member.awaited:
            self._launch(watched)
        elif not watched.held:
            self._relaunch(watched)

    def _await_ready(self, row: Sequence[Watched]) -> None:
        """Raises NotReady when one of the row dies or is too slow, StopAsked when a signal came."""
        while not all(watched.ready for watched in row):
            for watched in row:
                if not watched.ready and watched.child:
                    watched.ready = watched.member.ready()
                    name, last = watched.member.name, watched.child.last_lines
                    if watched.child.exit_code is not None:
                        raise NotReady(f"{name} ended with {watched.child.exit_code}:\n{last()}")
                    if not watched.ready and time.monotonic() > watched.started_at + watched.member.seconds:
                        raise NotReady(
                            f"{name} was not ready within {watched.member.seconds:.0f} s:\n{last()}"
                        )
            self._publish()
            if self._stop_asked:
                raise StopAsked
            time.sleep(POLL_SECONDS)

    def _watch(self) -> None:
        while not self._stop_asked:
            self._heed_storage()
            held = self._journal.held() | self._house.spared()
            for watched in self._all():
                self._obey(watched, watched.member.name in held)
                if not watched.held:
                    self._look_after(watched)
            self._publish()
            time.sleep(POLL_SECONDS)

    def _heed_storage(self) -> None:
        """When there is room again, start at once what died of the full disk."""
        if self._house.record(self._journal) == ENOUGH:
            for watched in self._all():
                if watched.restart_at is not None:
                    watched.deaths, watched.restart_at = 0, time.monotonic()

    def _obey(self, watched: Watched, held: bool) -> None:
        """Stop what is wanted down, start what is no longer."""
        if held == watched.held:
            return
        watched.held = held
        if not held:
            watched.deaths = 0
            self._relaunch(watched)
            return
        if watched.child:
            watched.child.stop()
        watched.ready, watched.restart_at = False, None
        self._journal.record(watched.member.name, "stopped", "held")

    def _look_after(self, watched: Watched) -> None:
        now = time.monotonic()
        if watched.restart_at is not None:
            if now >= watched.restart_at:
                watched.restarts += 1
                self._relaunch(watched)
        elif watched.child and watched.child.exit_code is not None:
            code, lived = watched.child.exit_code, now - watched.started_at
            self._plan_restart(watched, lived, f"exit code {code} after {lived:.0f} s", ended_as(code))
        elif not watched.ready:
            if watched.member.awaited or now > watched.probed_at + LIVE_SECONDS / 3:
                watched.probed_at = now
                watched.ready = watched.member.ready()
                if watched.ready:
                    self._journal.record(watched.member.name, "ready")
                elif now > watched.started_at + watched.member.seconds:
                    self._probe(watched)
        elif now > watched.probed_at + LIVE_SECONDS:
            self._probe(watched)

    def _probe(self, watched: Watched) -> None:
        """Kill what has been silent for too long; its death is seen at the next look."""
        watched.silent = 0 if watched.member.alive() else watched.silent + 1
        watched.probed_at = time.monotonic()
        if watched.silent >= SILENT_PROBES and watched.child:
            self._journal.record(watched.member.name, "stalled", f"silent {watched.silent} times; killed")
            watched.silent = 0
            watched.child.kill()

    def _relaunch(self, watched: Watched) -> None:
        """A restart may fail for a passing reason, a port still held: that is a death, not our end."""
        try:
            self._launch(watched)
        except (DaybookError, OSError) as reason:
            self._plan_restart(watched, 0.0, str(reason))

    def _plan_restart(self, watched: Watched, lived: float, reason: str, event: str = "died") -> None:
        wait = watched.died(lived, self._broker_was_away())
        watched.ready, watched.restart_at = False, time.monotonic() + wait
        self._journal.record(watched.member.name, event, f"{reason}; restart in {wait:g} s")

    def _launch(self, watched: Watched) -> None:
        watched.child = Child(watched.member.prepare(), log_file(self._settings, watched.member.name))
        watched.ready, watched.restart_at, watched.started_at = False, None, time.monotonic()
        self._journal.record(watched.member.name, "started", f"pid {watched.child.pid}")

    def _stop(self) -> None:
        self._phase = Phase.STOPPING
        self._publish()
        for row in reversed(self._rows):
            children = [watched.child for watched in row if watched.child]
            for child in children:
                child.ask_to_stop()
            for child in children:
                child.stop()
            for watched in row:
                watched.ready = False
            self._publish()
        self._journal.record("stack", "stopped")

    def _all(self) -> list[Watched]:
        return [watched for row in self._rows for watched in row]

    def _publish(self, failure: str = "") -> None:
        states = tuple(watched.state() for watched in self._all())
        short = self._house.storage.short
        state = StackState(self._phase, self._pid, self._settings.port_base, states, failure, short)
        if state != self._written and self._journal.write(state):
            self._written = state


def supervise(
    settings: StackSettings,
    journal: StackJournal,
    rows: Sequence[Sequence[Member]],
    was_away: Callable[[], bool] = lambda: False,
) -> int:
    """Supervise until SIGTERM or SIGINT. The exit code is 1 when another supervisor holds this stack."""
    with journal.sole_supervisor() as alone:
        if not alone:
            return 1
        supervisor = Supervisor(settings, os.getpid(), journal, rows, was_away)
        signal.signal(signal.SIGTERM, supervisor.ask_to_stop)
        signal.signal(signal.SIGINT, supervisor.ask_to_stop)
        return supervisor.run()


if __name__ == "__main__":
    stack = StackSettings()
    rows = members(stack, sys.argv[1:])
    sys.exit(supervise(stack, StackJournal(stack.home), rows, broker_was_away(stack.kafka)))
