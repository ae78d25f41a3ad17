"""`python -m tests.bench [P1 …] [--quick] [--check] [--keep] [--from FILE]`: run benchmarks, print tables, write JSON.

`--check` compares the ratios to peers with `floors.toml`, `--keep` writes them there; `--from` uses an earlier run.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from infra.base.errors import DaybookError
from tests.bench.floors import FILE, PEERS, Verdict, compare, keep, read_floors, read_run, write_floors
from tests.bench.harness import FULL, QUICK, Effort, Unmeasurable
from tests.bench.machine import CAVEATS, load_average, machine
from tests.bench.report import Result, show, write

BENCHMARKS = {
    "P1": ("p1_http_commands", "durable commands over HTTP"),
    "P2": ("p2_decide_loop", "the decide loop, without HTTP"),
    "P3": ("p3_live_projection", "the live projection"),
    "P4": ("p4_rebuild", "a read model rebuilt from zero"),
    "P5": ("p5_replay", "the log replayed by Spark, and the lake"),
    "P5B": ("p5b_marts", "all marts of a large lake, and after 1,000 more orders"),
    "P5C": ("p5c_bounded", "a large log copied, its marts and its audit, in 2 GB"),
    "P6": ("p6_visibility", "from acknowledged to visible"),
    "P7": ("p7_mirror", "the mirror: delay and catching up"),
    "P8": ("p8_failover", "what a failover costs"),
    "P9": ("p9_restart", "a worker's restart"),
    "P11": ("p11_settled_lines", "settled order lines, the real input"),
    "P12": ("p12_crashes", "what a crash costs"),
    "P13": ("p13_scale_out", "what the next slot and core give"),
    "P14": ("p14_others", "what other clients wait for one greedy customer, and for a hostile crowd"),
    "P15": ("p15_security", "what security costs"),
    "P16": ("p16_cluster_size", "what the size of a cluster costs"),
    "P10": ("p10_memory", "memory over time"),
}
INTERRUPTED = 130
console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)
progress = Console(stderr=True, highlight=False)


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[P]...", help=f"Of {', '.join(BENCHMARKS)}; default: all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="3 short windows: a look, not a claim.")] = False,
    json: Annotated[Path, typer.Option(metavar="FILE")] = Path("build/bench.json"),
    check: Annotated[
        bool, typer.Option("--check", help="Compare the ratios to peers with floors.toml.")
    ] = False,
    keep_floors: Annotated[bool, typer.Option("--keep", help="Write the ratios to floors.toml.")] = False,
    saved: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", exists=True, dir_okay=False, help="Check or keep this run."),
    ] = None,
) -> None:
    """Run benchmarks, print tables, write JSON. With --check or --keep: by default those that have peers.

    Exit code 0: all measured; 1: something could not be, or with --check something fell or is missing. A goal that
    was missed is told, and no failure.
    """
    floors = check or keep_floors
    if saved is not None and not floors:
        raise typer.BadParameter("--from needs --check or --keep")
    available = PEERS if floors else BENCHMARKS
    chosen = [name.upper() for name in names or available]
    if unknown := [name for name in chosen if name not in available]:
        which = "benchmark with peers" if floors else "benchmark"
        raise typer.BadParameter(
            f"there is no {which} {', '.join(unknown)}; there are {', '.join(available)}"
        )
    code = 0
    if saved is None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        json.parent.mkdir(parents=True, exist_ok=True)
        code = _measured(chosen, QUICK if quick else FULL, json)
    if floors and code != INTERRUPTED:
        code = max(code, _floors(saved or json, chosen, check, keep_floors))
    raise typer.Exit(code)


def _floors(file: Path, names: Sequence[str], check: bool, keep_floors: bool) -> int:
    """Check a run, then keep its ratios; the process's exit code."""
    try:
        run, code = read_run(file), 0
        if check:
            code = _checked(run, file, names)
        if keep_floors:
            write_floors(keep(run, read_floors(), names))
            console.print(f"written to {FILE}: review the difference")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return code


def _checked(run: Mapping[str, Any], file: Path, names: Sequence[str]) -> int:
    floors = read_floors()
    findings = compare(run, floors, names)
    for finding in findings:
        console.print(str(finding), markup=False, soft_wrap=True)
    counts = Counter(finding.verdict for finding in findings)
    number = sum(where[0] in names for where in floors.kept)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict))
    console.print(f"{number} floors of {', '.join(names)}: {summary}")
    if counts["rose"] or counts["new"]:
        command = f"python -m tests.bench {' '.join(names)} --keep --from {file}"
        console.print(f"to raise them and to add the new ones: {command}", soft_wrap=True)
    return 1 if counts["fell"] or counts["missing"] else 0


def _measured(names: Sequence[str], effort: Effort, file: Path) -> int:
    """The process's exit code."""
    about = {"machine": machine(), "effort": vars(effort), "measured": f"{datetime.now(UTC):%Y-%m-%d}"}
    console.print(f"{about['machine']}\n{CAVEATS}\nload average {load_average()}\n", soft_wrap=True)
    results: list[Result] = []
    try:
        for name in names:
            results.append(_run(name, effort))
            write(file, about, results)
            show(results[-1], console)
    except KeyboardInterrupt:
        progress.print("stopped; what was measured is kept")
        return INTERRUPTED
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


app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command()(main)

if __name__ == "__main__":
    app()
