"""What the supervisor reports to the commands: its state, replaced as a whole, and its events, one per line.

A full disk does not stop the supervisor: it writes the events later, when there is room again.
"""

import fcntl
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from infra.base.errors import OtherCommand
from infra.base.files import KEPT_FILES, older, rotate, write_whole

EVENTS_BYTES = 4 * 1024 * 1024
UNWRITTEN_EVENTS = 1000


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class MemberState(msgspec.Struct, frozen=True):
    """One process; pid is None while it is down. `held`: an operator or the supervisor keeps it down.
    `silent_since`: it runs and does not respond."""

    name: str
    pid: int | None = None
    ready: bool = False
    restarts: int = 0
    held: bool = False
    silent_since: str = ""


class StackState(msgspec.Struct, frozen=True):
    """The supervisor's view. `failure` is the reason of phase FAILED; `short`: the disk is nearly full."""

    phase: Phase
    supervisor: int
    port_base: int
    members: tuple[MemberState, ...] = ()
    failure: str = ""
    short: bool = False


class StackJournal:
    """The state file, the events file, the held members, the numbers of processes and the locks of one stack."""

    def __init__(self, home: Path) -> None:
        self._state = home / "state.json"
        self._events = home / "events.jsonl"
        self._held = home / "held.json"
        self._counts = home / "scale.json"
        self._lock = home / "supervisor.lock"
        self._change = home / "change.lock"
        self._unwritten: deque[str] = deque(maxlen=UNWRITTEN_EVENTS)
        home.mkdir(parents=True, exist_ok=True)

    def write(self, state: StackState) -> bool:
        """Replace the state. Returns False, and keeps the previous state, where the disk is full."""
        try:
            write_whole(self._state, msgspec.json.encode(state))
        except OSError:
            return False
        return True

    def read(self) -> StackState | None:
        """The last state, also of a supervisor that has ended; None before the first, or where it is damaged."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=StackState)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def running(self) -> StackState | None:
        """The state of the running supervisor; None where none runs."""
        return self.read() if self.supervised() else None

    def record(self, process: str, event: str, detail: str = "") -> None:
        """Append an event. Where the disk is full, it is written with a later one: the newest `UNWRITTEN_EVENTS`."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        detail = detail.encode(errors="replace").decode()  # it may come from a file's name
        entry = {"at": at, "process": process, "event": event, "detail": detail}
        line = msgspec.json.encode(entry).decode() + "\n"
        # a failed write may have left half a line
        begin = "\n" if self._unwritten else ""
        self._unwritten.append(line)
        with suppress(OSError):
            rotate(self._events, EVENTS_BYTES)
            with self._events.open("a", encoding="utf-8") as out:
                out.write(begin + "".join(self._unwritten))
            self._unwritten.clear()

    def events(self) -> list[dict[str, str]]:
        """All readable events: a power cut or a full disk may have left half a line."""
        events = []
        for file in [*(older(self._events, number) for number in range(KEPT_FILES, 0, -1)), self._events]:
            for line in file.read_bytes().splitlines() if file.exists() else []:
                with suppress(msgspec.DecodeError):
                    events.append(msgspec.json.decode(line, type=dict[str, str]))
        return events

    def keep_down(self, name: str) -> None:
        """Keep a member down, over restarts too; a running supervisor stops it."""
        write_whole(self._held, msgspec.json.encode(sorted(self.held() | {name})))
        self.record(name, "held")

    def release(self, name: str) -> None:
        """Let it run again; a running supervisor starts it."""
        write_whole(self._held, msgspec.json.encode(sorted(self.held() - {name})))
        self.record(name, "released")

    def held(self) -> frozenset[str]:
        """The members that are kept down."""
        try:
            return frozenset(msgspec.json.decode(self._held.read_bytes(), type=list[str]))
        except FileNotFoundError:
            return frozenset()

    def scale(self, kind: str, count: int) -> None:
        """Run so many processes of a kind from now on."""
        if self.counts().get(kind, 1) == count:
            return
        write_whole(self._counts, msgspec.json.encode(self.counts() | {kind: count}))
        self.record(kind, "scaled", str(count))

    def counts(self) -> dict[str, int]:
        """How many processes of a kind there should be, where somebody has said so; otherwise there is one."""
        try:
            return msgspec.json.decode(self._counts.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}

    def supervised(self) -> bool:
        """Whether a supervisor runs."""
        with self.sole_supervisor() as free:
            return not free

    @contextmanager
    def sole_supervisor(self) -> Iterator[bool]:
        """Take the stack's lock; yields False when another supervisor has it. A crash releases it."""
        with self._lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    @contextmanager
    def sole_change(self, command: str) -> Iterator[None]:
        """One command at a time changes roles, disks or the owners of partitions. A crash ends that.

        Raises OtherCommand, which names the other one and its age.
        """
        self._change.parent.mkdir(parents=True, exist_ok=True)
        with self._change.open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise OtherCommand(_running_command(file.read())) from None
            file.truncate(0)
            file.write(msgspec.json.encode(RunningCommand(command, os.getpid(), datetime.now(UTC))))
            file.flush()
            yield


class RunningCommand(msgspec.Struct, frozen=True):
    """The command that has the lock of `sole_change`."""

    command: str
    pid: int
    since: datetime


def _running_command(content: bytes) -> str:
    try:
        other = msgspec.json.decode(content, type=RunningCommand)
    except msgspec.DecodeError:  # it has the lock, and has not written its name yet
        return "another command changes the shop: try again when it has ended"
    age = (datetime.now(UTC) - other.since).total_seconds()
    return f"`daybook {other.command}` (pid {other.pid}) has been running for {age:.0f} s: try again when it has ended"
