"""A process that works on request: it reads a count from stdin, works, and writes a line of JSON to stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from tests.bench.harness import Unmeasurable, Window

Work = Callable[[int], Mapping[str, float]]


def serve_work(work: Work, after: Callable[[], object] = lambda: None) -> None:
    """In the process: report that it is ready, then work on request until stdin ends.

    It writes the figures, then does `after`, which completes deferred work and does not count, and reports that.
    """
    _write({})
    for line in sys.stdin:
        began, used = time.perf_counter(), time.process_time()
        more = work(int(line))
        passed = time.perf_counter() - began
        used = time.process_time() - used
        figures = {
            "rate": int(line) / passed,
            "cpu own": used / passed,
            "CPU µs": used / int(line) * 1e6,
            **more,
        }
        _write(figures)
        after()
        _write({})


def _write(content: Mapping[str, float]) -> None:
    sys.__stdout__.write(json.dumps(content) + "\n")  # type: ignore[union-attr] # never without stdout
    sys.__stdout__.flush()  # type: ignore[union-attr]


class WorkProcess:
    """Starts and controls such a process; a context that waits until the process is ready."""

    def __init__(self, name: str, log: Path, *command: str) -> None:
        self._name, self._log = name, log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> WorkProcess:
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()

    def work(self, count: int) -> Window:
        """One window: `count` pieces of work. Raises Unmeasurable where the process ended."""
        self.begin(count)
        window = self.end()
        self.complete()
        return window

    def begin(self, count: int) -> None:
        """Let it work, and do not wait; `end` waits for the figures, `complete` until it has nothing left to do."""
        ends: IO[str] | None = self._process.stdin
        assert ends is not None, "stdin is a pipe"
        ends.write(f"{count}\n")
        ends.flush()

    def end(self) -> Window:
        figures = self._read()
        return Window(figures.pop("rate"), {name: round(figure, 3) for name, figure in figures.items()})

    def complete(self) -> None:
        self._read()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None, "stdout is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise Unmeasurable(f"{self._name} ended:\n{self._log.read_text()[-2000:]}")
        figures: dict[str, float] = json.loads(line)
        return figures
