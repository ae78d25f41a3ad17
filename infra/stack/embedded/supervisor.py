"""The process behind `daybook up`: starts the stack's members, restarts those that die, stops them in order.

`python -m infra.stack.embedded.supervisor [NAME…]` runs it in the foreground; `daybook up` starts it detached. The
Spark cluster (`infra/stack/embedded/spark.py`) runs in the same way. A thread of its own watches the disk.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from infra.base.errors import DaybookError, NotReady
from infra.base.files import rotate
from infra.base.journal import MemberState, Phase, StackJournal, StackState
from infra.base.ports import require_free
from infra.base.settings import MOST, StackSettings
from infra.stack.embedded.child import Child
from infra.stack.embedded.stack import Member, Scaled, log_file, members, open_site
from infra.stack.security import starting_address
from infra.stack.shop import SILENT, instances, kind_of
from infra.stack.storage import LOOK_SECONDS, MEGABYTE, StorageWatch
from services.kernel.exit_codes import EXIT_JUDGED, EXIT_LAYOUT, EXIT_LOST, EXIT_REBUILT, EXIT_STOOD_DOWN
from services.kernel.worker.broker_monitor import BrokerSight

PLANNED = {
    EXIT_LAYOUT: "layout_changed",
    EXIT_STOOD_DOWN: "stood_down",
    EXIT_JUDGED: "decision_recorded",
    EXIT_REBUILT: "read_model_rebuilt",
}
# Ends that say "start me again": they do not fail a start either, as where a busy machine's broker paused for 3 s.
PASSING = {EXIT_LOST, *PLANNED}
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
# A process that has lived this long starts again at once.
SETTLED_SECONDS = 60.0
# The broker's absence explains a death this soon after it, but not one this soon after the process started.
EXCUSED_SECONDS, SUDDEN_SECONDS = 10.0, 1.0


def backoff(deaths: int) -> float:
    """Seconds before the restart after the `deaths`-th early death in a row; 0 for none."""
    return min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (deaths - 1)) if deaths else 0.0


@dataclass
class Watched:
    """A member under watch; `restart_at` and `started_at` are monotonic seconds.

    `lived`: seconds since the last death that was counted. `silent`: how many of the last probes in a row failed; such
    a member runs, and is not ready.
    """

    member: Member
    child: Child | None = None
    ready: bool = False
    restarts: int = 0
    deaths: int = 0
    lived: float = 0.0
    started_at: float = 0.0
    restart_at: float | None = None
    probed_at: float = 0.0
    silent: int = 0
    silent_since: str = ""
    held: bool = False

    def died(self, lived: float, broker_was_away: bool) -> float:
        """Count a death after `lived` seconds. Returns the seconds before the restart.

        A process that ended because the broker was away restarts at once, and waits for the broker itself: that
        death does not count.
        """
        self.lived += lived
        if broker_was_away and kind_of(self.member.name) not in SILENT and lived > SUDDEN_SECONDS:
            return 0.0
        self.deaths = 0 if self.lived > SETTLED_SECONDS else self.deaths + 1
        self.lived = 0.0
        return backoff(self.deaths)

    def state(self) -> MemberState:
        alive = self.child is not None and self.child.exit_code is None
        pid = self.child.pid if self.child and alive else None
        since = self.silent_since if alive and self.silent else ""
        ready = self.ready and alive and not self.silent
        return MemberState(self.member.name, pid, ready, self.restarts, self.held, since)


def broker_was_away(bootstrap: str) -> Callable[[], bool]:
    """A function that returns whether an independent client saw the broker away lately."""
    sight = BrokerSight(bootstrap)
    sight.follow()
    return lambda: sight.sight.away_within(EXCUSED_SECONDS, time.monotonic())


SHORT, ENOUGH = "short", "enough"


def site_storage(settings: StackSettings, *, was_short: bool = False) -> StorageWatch:
    """The disks of a site's state: its stores may have disks of their own."""
    stores = (*settings.nodes("broker"), *settings.nodes("controller"), "postgres")
    folders = [settings.home, *(settings.home / store for store in stores)]
    return StorageWatch(folders, settings.storage_reserve_mb * MEGABYTE, was_short=was_short)


class Housekeeping:
    """Watches the disk and rotates the logs of `members`. `start` and `stop` are called once."""

    def __init__(self, settings: StackSettings, members: Sequence[str]) -> None:
        self.storage = site_storage(settings)
        every = [name for kind in (*members, "supervisor") for name in instances(kind, MOST)]
        self._logs = [log_file(settings, name) for name in every]
        self._recorded = False
        self.bootstrap = ""  # of a broker that has `site.control`, which gets a block when space is short
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="housekeeping", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def record(self, journal: StackJournal) -> str:
        """Record when space gets short and when there is enough again. Returns that event, else nothing."""
        if self.storage.short == self._recorded:
            return ""
        self._recorded = self.storage.short
        event = SHORT if self._recorded else ENOUGH
        journal.record("storage", event, str(self.storage))
        return event

    def spared(self) -> frozenset[str]:
        """The members to keep down while the reserve shrinks despite the write block: the mirror fills its site."""
        return frozenset({"mirror"}) if self.storage.critical else frozenset()

    def look(self) -> None:
        """Once: the disk, and the sizes of the logs."""
        self.storage.look(self.bootstrap)
        for log in self._logs:
            rotate(log, written=True)

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            with suppress(OSError):  # the next look repeats it
                self.look()


POLL_SECONDS = 0.1
# A process that is silent this often in a row is killed: a frozen worker's open transaction blocks every reader.
LIVE_SECONDS = 3.0
SILENT_PROBES = 5


class StopRequested(Exception):
    """A signal requested the end while the stack was starting."""


class Supervisor:
    """Runs one stack until it receives a stop signal; `rows` start in order and stop in reverse.

    `broker_was_away` returns whether the broker was away lately; `scaled`, once it is up, the rows as they should be.
    """

    def __init__(
        self,
        settings: StackSettings,
        journal: StackJournal,
        rows: Sequence[Sequence[Member]],
        broker_was_away: Callable[[], bool] = lambda: False,
        scaled: Callable[[], Sequence[Sequence[Member]]] = tuple,
    ) -> None:
        self._broker_was_away, self._scaled, self._open = broker_was_away, scaled, False
        self._settings, self._journal = settings, journal
        self._rows = [[Watched(member) for member in row] for row in rows]
        self._phase, self._stop_requested = Phase.STARTING, False
        self._written: StackState | None = None
        self._house = Housekeeping(settings, [watched.member.name for watched in self._all()])

    def request_stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self._stop_requested = True

    def run(self) -> int:
        """Start, watch, stop. The exit code: 0 after a requested stop, 1 after a failed start."""
        failure = ""
        self._house.start()
        try:
            self._start()
            self._watch()
        except StopRequested:
            self._journal.record("stack", "interrupted", "stopped while starting")
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
                open_site(self._settings, self._journal, lambda: self._stop_requested)
                if self._stop_requested:
                    raise StopRequested
                self._house.bootstrap = self._settings.kafka
                self._open = True
                self._scale()
        self._phase = Phase.RUNNING
        self._journal.record("stack", "running")

    def _first_launch(self, watched: Watched) -> None:
        """Raises DaybookError only for a member that the stack cannot do without."""
        watched.held = watched.member.name in self._journal.held()
        if watched.member.awaited:
            self._launch(watched)
        elif not watched.held:
            self._relaunch(watched)

    def _await_ready(self, row: Sequence[Watched]) -> None:
        """Raises NotReady when one of the row ends for good or is too slow, StopRequested when a signal came."""
        began = time.monotonic()
        while not all(watched.ready for watched in row):
            for watched in row:
                if not watched.ready and watched.child:
                    watched.ready = watched.member.ready()
                    code, seconds, failure = watched.child.exit_code, watched.member.seconds, ""
                    if code is not None and code not in PASSING:
                        failure = f"ended with {code}"
                    elif not watched.ready and time.monotonic() > began + seconds:
                        failure = f"was not ready within {seconds:.0f} s"
                    elif code is not None:
                        self._look_after(watched)
                    if failure:
                        raise NotReady(f"{watched.member.name} {failure}:\n{watched.child.last_lines()}")
            self._publish()
            if self._stop_requested:
                raise StopRequested
            time.sleep(POLL_SECONDS)

    def _watch(self) -> None:
        while not self._stop_requested:
            self._heed_storage()
            self._scale()
            held = self._journal.held() | self._house.spared()
            for watched in self._all():
                self._obey(watched, watched.member.name in held)
                if not watched.held:
                    self._look_after(watched)
            self._publish()
            time.sleep(POLL_SECONDS)

    def _scale(self) -> None:
        """Stop members that are no longer expected, and add new ones, which are started like released ones."""
        for row, expected in zip(self._rows, self._scaled() if self._open else (), strict=False):
            present = {watched.member.name: watched for watched in row}
            for name in present.keys() - {member.name for member in expected}:
                self._obey(present[name], True)
            row[:] = [present.get(member.name) or Watched(member, held=True) for member in expected]

    def _heed_storage(self) -> None:
        """When there is room again, restart at once what the full disk ended."""
        if self._house.record(self._journal) == ENOUGH:
            for watched in self._all():
                if watched.restart_at is not None:
                    watched.deaths, watched.restart_at = 0, time.monotonic()

    def _obey(self, watched: Watched, held: bool) -> None:
        """Stop a member that is to be down, start one that no longer is."""
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
            event = PLANNED.get(code, "died")  # a planned end is no death
            self._plan_restart(watched, lived, f"exit code {code} after {lived:.0f} s", event)
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
        """Kill a member that has been silent for too long; the next look sees its death."""
        watched.silent = 0 if watched.member.alive() else watched.silent + 1
        now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        watched.silent_since = (watched.silent_since or now) if watched.silent else ""
        watched.probed_at = time.monotonic()
        if watched.silent >= SILENT_PROBES and watched.child:
            self._journal.record(watched.member.name, "stalled", f"silent {watched.silent} times; killed")
            watched.silent = 0
            watched.child.kill()

    def _relaunch(self, watched: Watched) -> None:
        """A restart may fail for a passing reason, such as a busy port: that counts as a death of the member."""
        try:
            self._launch(watched)
        except (DaybookError, OSError) as reason:
            self._plan_restart(watched, 0.0, str(reason))

    def _plan_restart(self, watched: Watched, lived: float, reason: str, event: str = "died") -> None:
        wait = 0.0 if event == PLANNED[EXIT_LAYOUT] else watched.died(lived, self._broker_was_away())
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
                child.request_stop()
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
        about = self._phase, os.getpid(), self._settings.port_base, states, failure
        state = StackState(*about, self._house.storage.short)
        if state != self._written and self._journal.write(state):
            self._written = state


def supervise(
    settings: StackSettings,
    journal: StackJournal,
    rows: Sequence[Sequence[Member]],
    was_away: Callable[[], bool] = lambda: False,
    scaled: Callable[[], Sequence[Sequence[Member]]] = tuple,
) -> int:
    """Supervise until SIGTERM or SIGINT. The exit code is 1 when another supervisor holds this stack."""
    with journal.sole_supervisor() as alone:
        if not alone:
            return 1
        supervisor = Supervisor(settings, journal, rows, was_away, scaled)
        signal.signal(signal.SIGTERM, supervisor.request_stop)
        signal.signal(signal.SIGINT, supervisor.request_stop)
        return supervisor.run()


if __name__ == "__main__":
    stack, only = StackSettings(), sys.argv[1:]
    was_away, scaled = broker_was_away(starting_address(stack)), Scaled(stack, only)
    sys.exit(supervise(stack, StackJournal(stack.home), members(stack, only), was_away, scaled))
