"""The reports of the benchmarks: tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.harness import Measured
from tests.bench.machine import CAVEATS
from tests.bench.statistics import Spread


@dataclass(frozen=True)
class Result:
    """One benchmark: its rows, the load average before and after, or why it could not be measured."""

    name: str
    about: str
    rows: Sequence[Measured]
    load_before: str
    load_after: str
    seconds: float
    failure: str = ""


def show(result: Result, console: Console) -> None:
    """One table per benchmark, with the load beside the figures."""
    heading = f"{result.name} {result.about} · load {result.load_before} → {result.load_after}"
    if result.failure:
        console.print(f"[bold]{heading}[/bold]\n[red]not measured: {result.failure}[/red]")
        return
    table = Table(title=heading, title_justify="left", caption=CAVEATS, caption_justify="left")
    for column in ("what", "by", "median", "min – max", "ours ÷ this (min – max)", "seen"):
        table.add_column(column, justify="left" if column in ("what", "by", "seen") else "right")
    for row in result.rows:
        for name in row.windows:
            ours = name == row.subject
            share = "" if ours else _text(row.ratio(name))
            what = f"{row.what}, {row.unit}" if ours else ""
            figures = row.spread(name)
            table.add_row(what, name, _number(figures.median), _range(figures), share, _seen(row, name))
        table.add_section()
    console.print(table)
    _show_parts([row for row in result.rows if row.parts], console)
    for row in result.rows:
        for goal in row.goals:
            mark = "[green]reached[/green]" if goal.met else "[red]missed [/red]"
            console.print(f"  {mark} {row.what}: {goal.text}: {_number(goal.measured)}", soft_wrap=True)
        for note in row.notes:
            console.print(f"  [dim]{row.what}: {note}[/dim]", soft_wrap=True)


def _show_parts(rows: Sequence[Measured], console: Console) -> None:
    """Where the time goes: a column per row. All rows have the same parts."""
    if not rows:
        return
    table = Table(title="where the time of one request goes, ms", title_justify="left")
    table.add_column("part")
    for row in rows:
        table.add_column(row.what, justify="right")
    for part in rows[0].parts:
        table.add_row(part, *(f"{row.parts[part]:.2f}" for row in rows))
    console.print(table)


def as_json(result: Result) -> Mapping[str, Any]:
    """All measurements as JSON."""
    return {
        "name": result.name,
        "about": result.about,
        "load_average": {"before": result.load_before, "after": result.load_after},
        "seconds": round(result.seconds, 1),
        "failure": result.failure,
        "rows": [_row(row) for row in result.rows],
    }


def write(path: Path, about: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Write all results so far; the file is replaced atomically."""
    content = {**about, "caveats": CAVEATS, "benchmarks": [as_json(result) for result in results]}
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(json.dumps(content, indent=1))
    beside.replace(path)


def _row(row: Measured) -> Mapping[str, Any]:
    return {
        "what": row.what,
        "name": row.name or row.what,
        "unit": row.unit,
        "lower_is_better": row.lower_is_better,
        "by": {
            name: {
                **row.spread(name)._asdict(),
                "windows": [asdict(window) for window in windows],
                "ours_to_this": None if name == row.subject else row.ratio(name)._asdict(),
            }
            for name, windows in row.windows.items()
        },
        "goals": [{**asdict(goal), "met": goal.met} for goal in row.goals],
        "notes": row.notes,
        "parts": dict(row.parts),
    }


def _seen(row: Measured, name: str) -> str:
    details = dict.fromkeys(detail for window in row.windows[name] for detail in window.seen)
    return " · ".join(f"{detail} {_number(row.seen(detail, name).median)}" for detail in details)


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:,.3g}"


def _range(figures: Spread) -> str:
    return f"{_number(figures.low)} – {_number(figures.high)}"


def _text(ratios: Spread) -> str:
    return f"{ratios.median:.2f} ({ratios.low:.2f} – {ratios.high:.2f})"
