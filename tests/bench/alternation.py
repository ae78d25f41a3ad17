"""`python -P alternation.py P WINDOWS`: our side of one benchmark, one window at a time, each on request.

`tests.bench.against` starts this file in two trees, this one and an older commit's, and lets them alternate. So it
imports only what both have. It writes lines of JSON: null when a measurement waits to begin, true when it is over,
and the list of rows at the end. It reads one line before each measurement.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.__main__ import BENCHMARKS
from tests.bench.harness import Contender, Effort, Window

# The measurements of a benchmark that has no contenders; one may call another.
STEPS = {"P9": ("_timed", "_killed")}


def main(name: str, windows: str) -> None:
    module = importlib.import_module(f"tests.bench.{BENCHMARKS[name][0]}")
    alternation = Alternation()
    for step in STEPS.get(name, ()):
        setattr(module, step, _alternating(alternation, getattr(module, step)))
    if hasattr(module, "interleave"):
        setattr(module, "interleave", alternation.interleave)  # noqa: B010  # what it is in the other tree is not known here
    rows = module.run(Effort(windows=int(windows)), lambda text: print(text, file=sys.stderr, flush=True))
    _write([_shown(row) for row in rows])


class Alternation:
    """A context that waits until the other side is idle; leaving it lets the other side measure."""

    def __init__(self) -> None:
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            _write(None)
            if not sys.stdin.readline():
                raise SystemExit("the parent process closed stdin")
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            _write(True)

    def interleave(
        self,
        contenders: Sequence[Contender],
        windows: int,
        say: Callable[[str], None],
        *,
        warm: bool = True,
        before: Callable[[], None] = lambda: None,
    ) -> dict[str, list[Window]]:
        """Replaces the harness's function: measures the first contender only and gives its windows to the others."""
        taken: list[Window] = []
        for number in range(-1 if warm else 0, windows):
            with self:
                before()
                window = contenders[0].measure()
            if number >= 0:
                taken.append(window)
                say(f"window {number + 1} of {windows}: {window.figure:,.6g}")
        return {contender.name: taken for contender in contenders}


def _alternating(alternation: Alternation, measure: Callable[..., Any]) -> Callable[..., Any]:
    def measured(*arguments: Any) -> Any:
        with alternation:
            return measure(*arguments)

    return measured


def _shown(row: Any) -> dict[str, Any]:
    windows = row.windows[row.subject]
    return {
        "what": row.what,
        "unit": row.unit,
        "lower_is_better": row.lower_is_better,
        "figures": [window.figure for window in windows],
        "seen": [dict(window.seen) for window in windows],
    }


def _write(message: object) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
