"""`python -m tests.bench.against COMMIT [P …]`: this tree beside an older one, window by window, on one machine.

Each tree runs its own code in its own environment, with its own broker and processes; they measure alternately, and
either begins in turn. A ratio compares two windows that were measured next to each other: above 1 this tree is better.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tests.bench.machine import load_average, machine
from tests.bench.statistics import ratios, spread

TREE = Path(__file__).resolve().parents[2]
ALTERNATION = Path(__file__).with_name("alternation.py")
console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


def main(
    commit: str,
    names: Annotated[list[str], typer.Argument(metavar="P...")],
    windows: Annotated[int, typer.Option(help="Pairs of windows for each row.")] = 10,
    file: Annotated[Path, typer.Option("--json", metavar="FILE")] = TREE / "build/against.json",
) -> None:
    """Measure this tree and COMMIT alternately and show the ratios, their median and spread."""
    with tempfile.TemporaryDirectory(prefix="daybook-against-") as folder:
        older = Path(folder) / "tree"
        _run("git", "worktree", "add", "--quiet", "--detach", str(older), commit)
        try:
            _run("make", "--quiet", "-C", str(older), "setup")
            _compare(older, commit, [name.upper() for name in names], windows, file)
        finally:
            _run("git", "worktree", "remove", "--force", str(older))


def _compare(older: Path, commit: str, names: Sequence[str], windows: int, file: Path) -> None:
    comparison: dict[str, Any] = {"machine": machine(), "against": commit, "rows": {}}
    for name in names:
        console.print(f"{name}, {windows} pairs beside {commit}; load average {load_average()}")
        ours, theirs = _measure(older, name, windows)
        comparison["rows"][name] = {"now": ours, "before": theirs}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(comparison, indent=1))
        console.print(_table(name, ours, theirs))
    console.print(f"load average {load_average()}; written to {file}")


def _measure(older: Path, name: str, windows: int) -> tuple[list[Any], list[Any]]:
    """The rows of both trees."""
    sides = [Side(TREE, name, windows), Side(older, name, windows)]
    try:
        while True:
            waiting = [side.waits() for side in sides]
            if not all(waiting):
                break
            for side in sides:
                side.take_turn()
            sides.reverse()
        first, second = sorted(sides, key=lambda side: side.tree != TREE)
        return first.rows, second.rows
    finally:
        for side in sides:
            side.end()


class Side:
    """The running measurement of one tree."""

    def __init__(self, tree: Path, name: str, windows: int) -> None:
        self.tree, self.rows = tree, list[Any]()
        self._process = subprocess.Popen(
            [tree / ".venv/bin/python", "-P", ALTERNATION, name, str(windows)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def waits(self) -> bool:
        """Wait for its next message: True when it waits to measure, False when it has sent its rows."""
        message = self._read()
        if message is None:
            return True
        self.rows = message
        return False

    def take_turn(self) -> None:
        """Let it measure once, and wait until it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._read() is True

    def end(self) -> None:
        self._process.terminate()
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(
                f"the measurement in {self.tree} ended too early: exit code {self._process.wait()}"
            )
        return json.loads(line)


def _table(name: str, ours: Sequence[Any], theirs: Sequence[Any]) -> Table:
    table = Table(title=name)
    for heading in ("what", "unit", "before", "now", "ratio", "from", "to"):
        table.add_column(heading, justify="left" if heading in ("what", "unit") else "right")
    for now, before in zip(ours, theirs, strict=True):
        pairs = (
            (before["figures"], now["figures"])
            if now["lower_is_better"]
            else (now["figures"], before["figures"])
        )
        ratio = spread(ratios(*pairs))
        table.add_row(
            now["what"],
            now["unit"],
            f"{spread(before['figures']).median:,.6g}",
            f"{spread(now['figures']).median:,.6g}",
            f"{ratio.median:.2f}",
            f"{ratio.low:.2f}",
            f"{ratio.high:.2f}",
        )
    return table


def _run(*command: str) -> None:
    subprocess.run(command, cwd=TREE, check=True)


if __name__ == "__main__":
    typer.run(main)
