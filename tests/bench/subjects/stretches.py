"""A process that works in stretches: a line on stdin with a number, work, a line of JSON on stdout."""

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


def obey(work: Work, after: Callable[[], object] = lambda: None) -> None:
    """In the process: say that it is ready, then do as told until stdin ends.

    The clock stands still during `after`, which brings to an end what a stretch left for later.
    """
    _tell({})
    for line in sys.stdin:
        began, used = time.perf_counter(), time.process_time()
        more = work(int(line))
        passed = time.perf_counter() - began
        used = time.process_time() - used
        told = {
            "rate": int(line) / passed,
            "cpu own": used / passed,
            "CPU µs": used / int(line) * 1e6,
            **more,
        }
        after()
        _tell(told)


def _tell(content: Mapping[str, float]) -> None:
    sys.__stdout__.write(json.dumps(content) + "\n")  # type: ignore[union-attr] # never without stdout
    sys.__stdout__.flush()  # type: ignore[union-attr]


class Stretches:
    """Its other end: enter to start it and wait until it is ready."""

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

    def __enter__(self) -> Stretches:
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()

    def work(self, count: int) -> Window:
        """One window: `count` pieces of work. Raises Unmeasurable where the process ended."""
        ends: IO[str] | None = self._process.stdin
        assert ends is not None, "stdin is a pipe"
        ends.write(f"{count}\n")
        ends.flush()
        told = self._hear()
        return Window(told.pop("rate"), {name: round(figure, 3) for name, figure in told.items()})

    def _hear(self) -> dict[str, float]:
        assert self._process.stdout is not None, "stdout is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise Unmeasurable(f"{self._name} ended:\n{self._log.read_text()[-2000:]}")
        heard: dict[str, float] = json.loads(line)
        return heard
