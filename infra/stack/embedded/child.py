"""One child process in its own process group, which ends with the process that started it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.base.errors import NotReady
from infra.base.files import rotate
from infra.base.waiting import wait_until

POLL_SECONDS = 0.05
LAST_LINES = 15


@dataclass(frozen=True)
class Program:
    """What to run and how to stop it.

    `environment` is the child's whole environment; `user` is a numeric id to run under, None for ours. After
    `stop_seconds` of a clean stop the process group is killed.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 30.0
    user: int | None = None


class Child:
    """A running program. Its output is appended to `log`; it gets its stop signal if our process dies."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        rotate(log)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*_tether(program.stop_signal), *program.command],
                env=dict(program.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=program.user,
                group=program.user,
                extra_groups=None if program.user is None else [],
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return once `ready` is true. Raises NotReady, with the log's end, when it dies or takes too long."""

        def ready_and_alive() -> bool:
            if ready():
                return True
            if self.exit_code is not None:
                raise NotReady(f"{self.program.name} ended with {self.exit_code}:\n{self.last_lines()}")
            return False

        wait_until(
            ready_and_alive,
            f"{self.program.name} is ready",
            seconds,
            every=POLL_SECONDS,
            error=lambda late: NotReady(f"{late}\n{self.last_lines()}"),
        )

    def request_stop(self) -> None:
        """Send the stop signal and return at once."""
        if self.exit_code is None:
            self._process.send_signal(self.program.stop_signal)

    def stop(self) -> None:
        """Stop it cleanly; kill its process group when that takes too long."""
        self.request_stop()
        try:
            self._process.wait(self.program.stop_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the whole process group at once."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def last_lines(self) -> str:
        """The end of the log, for an error's text."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])


def _tether(stop_signal: signal.Signals) -> tuple[str, ...]:
    """A prefix that makes Linux signal the child when its parent dies, where util-linux is installed.

    Not `preexec_fn`, which may deadlock in a process with threads.
    """
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", stop_signal.name.removeprefix("SIG")) if setpriv else ()
