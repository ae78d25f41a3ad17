"""`python -m tests.bench [P1 …] [--quick] [--json FILE]`: run benchmarks, print tables, write JSON."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.base.errors import DaybookError
from tests.bench.harness import QUICK, Effort, Unmeasurable
from tests.bench.machine import CAVEATS, load_average, machine
from tests.bench.report import Result, show, write

BENCHMARKS = {
    "P1": ("p1_http_commands", "durable commands over HTTP"),
    "P2": ("p2_decide_loop", "the decide loop, without HTTP"),
    "P3": ("p3_live_projection", "the live projection"),
    "P4": ("p4_rebuild", "a read model rebuilt from zero"),
    "P5": ("p5_replay", "the log replayed by Spark, and the lake"),
    "P6": ("p6_visibility", "from acknowledged to visible"),
    "P7": ("p7_mirror", "the mirror: delay and catching up"),
    "P8": ("p8_failover", "what a failover costs"),
    "P9": ("p9_restart", "a worker's restart"),
    "P11": ("p11_settled_lines", "settled order lines, the real input"),
    "P12": ("p12_crashes", "what a crash costs"),
    "P10": ("p10_memory", "memory over time"),
}
console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)
progress = Console(stderr=True, highlight=False)


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[P]...", help=f"Of {', '.join(BENCHMARKS)}; default: all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="3 short windows: a look, not a claim.")] = False,
    json: Annotated[Path, typer.Option(metavar="FILE")] = Path("build/bench.json"),
) -> None:
    """Run benchmarks, print tables, write JSON.

    Exit code 0: all measured; 1: something could not be; a goal that was missed is told, and no failure.
    """
    chosen = [name.upper() for name in names or BENCHMARKS]
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        raise typer.BadParameter(f"there is no {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    json.parent.mkdir(parents=True, exist_ok=True)
    raise typer.Exit(_measured(chosen, QUICK if quick else Effort(), json))


def _measured(names: Sequence[str], effort: Effort, file: Path) -> int:
    """The process's exit code."""
    about = {"machine": machine(), "effort": vars(effort)}
    console.print(f"{about['machine']}\n{CAVEATS}\nload average {load_average()}\n", soft_wrap=True)
    results: list[Result] = []
    try:
        for name in names:
            results.append(_run(name, effort))
            write(file, about, results)
            show(results[-1], console)
    except KeyboardInterrupt:
        progress.print("stopped; what was measured is kept")
        return 130
    console.print(f"\nwritten to {file}")
    return 1 if any(result.failure for result in results) else 0


def _run(name: str, effort: Effort) -> Result:
    module, about = BENCHMARKS[name]
    before, began = load_average(), time.perf_counter()
    progress.print(f"[bold]{name}[/bold] {about}: setting up")
    rows, failure = [], ""
    try:
        rows = importlib.import_module(f"tests.bench.{module}").run(
            effort, lambda text: progress.print(f"  {name} {text} [dim](load {os.getloadavg()[0]:.1f})[/dim]")
        )
    except (Unmeasurable, DaybookError) as error:
        failure = str(error)
    except ImportError as error:
        failure = f"its subject is not there: {error}"
    return Result(name, about, rows, before, load_average(), time.perf_counter() - began, failure)


if __name__ == "__main__":
    typer.run(main)
