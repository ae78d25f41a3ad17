"""What the supervisor tells the commands: its state, replaced as a whole, and its events, a line each.

A full disk does not stop the supervisor: what cannot be written now is written when there is room again.
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

from infra.base.rotation import KEPT_FILES, older, rotate

EVENTS_BYTES = 4 * 1024 * 1024
UNWRITTEN_EVENTS = 1000


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class MemberState(msgspec.Struct, frozen=True):
    """One process; pid is None while it is down. `held`: it is down because somebody wants it so."""

    name: str
    pid: int | None = None
    ready: bool = False
    restarts: int = 0
    held: bool = False


class StackState(msgspec.Struct, frozen=True):
    """The supervisor's view. `failure` is the reason of phase FAILED; `short`: the disk is nearly full."""

    phase: Phase
    supervisor: int
    port_base: int
    members: tuple[MemberState, ...] = ()
    failure: str = ""
    short: bool = False


class StackJournal:
    """The state file, the events file, the held members and the lock of one stack."""

    def __init__(self, home: Path) -> None:
        self._state = home / "state.json"
        self._events = home / "events.jsonl"
        self._held = home / "held.json"
        self._lock = home / "supervisor.lock"
        self._unwritten: deque[str] = deque(maxlen=UNWRITTEN_EVENTS)
        home.mkdir(parents=True, exist_ok=True)

    def write(self, state: StackState) -> bool:
        """False where the disk does not take it: then the state before stands."""
        try:
            _replace(self._state, msgspec.json.encode(state))
        except OSError:
            return False
        return True

    def read(self) -> StackState | None:
        """The last state, also of a supervisor that is gone; None before the first, or where it is damaged.

        Nothing depends on an old one: the next supervisor writes its own.
        """
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=StackState)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def record(self, process: str, event: str, detail: str = "") -> None:
        """Append an event; it stays over restarts of the stack.

        Where the disk does not take it, it is written with the next one: the newest `UNWRITTEN_EVENTS`.
        """
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
        """All that is kept and can be read: a power cut or a full disk may have left half a line."""
        found = []
        for file in [*(older(self._events, number) for number in range(KEPT_FILES, 0, -1)), self._events]:
            for line in file.read_bytes().splitlines() if file.exists() else []:
                with suppress(msgspec.DecodeError):
                    found.append(msgspec.json.decode(line, type=dict[str, str]))
        return found

    def hold(self, name: str) -> None:
        """Want a member down from now on, over restarts too; a living supervisor stops it."""
        _replace(self._held, msgspec.json.encode(sorted(self.held() | {name})))
        self.record(name, "held")

    def release(self, name: str) -> None:
        """Want it up again; a living supervisor starts it."""
        _replace(self._held, msgspec.json.encode(sorted(self.held() - {name})))
        self.record(name, "released")

    def held(self) -> frozenset[str]:
        """The members that somebody wants down."""
        try:
            return frozenset(msgspec.json.decode(self._held.read_bytes(), type=list[str]))
        except FileNotFoundError:
            return frozenset()

    @contextmanager
    def sole_supervisor(self) -> Iterator[bool]:
        """Hold the stack's lock; yields False when another supervisor holds it. A crash lets go of it."""
        with self._lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def supervised(self) -> bool:
        """True while a supervisor lives."""
        with self.sole_supervisor() as free:
            return not free


def _replace(file: Path, content: bytes) -> None:
    """As a whole: no reader ever sees half of it, not even after a power cut."""
    fresh = file.with_suffix(".fresh")
    with fresh.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())  # else the new name may be on the disk before the content is
    fresh.replace(file)
