"""The ratios to peers that the shop keeps: `floors.toml`, compared with a run and written from one.

A run is what `build/bench.json` contains. Every ratio is how many times better than the peer we are, so that more is
better in each row: for times it is the peer's divided by ours.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.bench.statistics import Spread

FILE = Path(__file__).with_name("floors.toml")
# With whom each benchmark competes. Its other contenders are limits, or variants of our own code.
PEERS: Mapping[str, Sequence[str]] = {
    "P1": ("asyncpg outbox", "pyeventsourcing"),
    "P2": ("plain loop", "plain loop, same records"),
    "P3": ("plain aiokafka", "Faust, one at a time"),
    "P4": ("the live projection", "row at a time", "executemany"),
    "P5": (
        "Python fold",
        "DuckDB fed by fastavro",
        "pickled UDF, value and headers",
        "pickled UDF, value alone",
        "UDF through Arrow, value alone",
    ),
    "P6": ("outbox, relay every 100 ms",),
}
TOLERANCE = 0.05
HEAD = """\
# How many times better than its peers each benchmark must stay, as the median over pairs of windows. More is better in
# every line: for times it is the peer's divided by ours. `make bench CHECK=1` compares a run with this file and names
# what fell by more than 5 %. `python -m tests.bench --keep` writes it from a run: review the difference, and say in the
# commit why a floor became lower. `measured` tells when, on how many cores, with how many windows, and the load
# averages before and after. A peer that waits for a disk (the outboxes, pyeventsourcing) is as fast as the disk:
# compare its ratios on one machine only.
"""

Verdict: TypeAlias = Literal["fell", "missing", "rose", "new"]
Ratio: TypeAlias = tuple[str, str, str]
"""Benchmark, row, peer."""


@dataclass(frozen=True)
class Floors:
    """`kept`: the floor of each ratio; `measured`: how the floors of each benchmark were measured."""

    kept: Mapping[Ratio, float]
    measured: Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    """A ratio that does not agree with its floor; `ratio` is absent from a missing one, `floor` from a new one."""

    verdict: Verdict
    where: Ratio
    ratio: Spread | None = None
    floor: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        benchmark, row, peer = self.where
        text = f"{self.verdict:8}{benchmark} {row}, {peer}: "
        match self.ratio, self.floor:
            case None, floor:
                return f"{text}floor {floor:.2f}, but {self.reason or 'the run has no such figure'}"
            case (median, low, high), None:
                return f"{text}{median:.2f} ({low:.2f} – {high:.2f}) has no floor yet"
            case (median, low, high), float(floor):
                change = f"{median / floor - 1:+.0%}".replace("-", "−")
                return f"{text}{median:.2f} ({low:.2f} – {high:.2f}), floor {floor:.2f}: {change}"
        raise AssertionError("a finding has a ratio or a floor")


def read_floors(file: Path = FILE) -> Floors:
    """Raises OSError and tomllib.TOMLDecodeError."""
    content = tomllib.loads(file.read_text("utf-8"))
    kept = {
        (benchmark, row, peer): float(floor)
        for benchmark, section in content.items()
        for row, peers in section["floors"].items()
        for peer, floor in peers.items()
    }
    return Floors(kept, {benchmark: section["measured"] for benchmark, section in content.items()})


def write_floors(floors: Floors, file: Path = FILE) -> None:
    """Replace the file."""
    text, section = HEAD, ("", "")
    for (benchmark, row, peer), floor in floors.kept.items():
        if benchmark != section[0]:
            text += f"\n[{benchmark}]\nmeasured = {_quoted(floors.measured[benchmark])}\n"
        if (benchmark, row) != section:
            text += f"\n[{benchmark}.floors.{_quoted(row)}]\n"
        section = (benchmark, row)
        text += f"{_quoted(peer)} = {floor:.3g}\n"
    file.write_text(text, "utf-8")


def read_run(file: Path) -> Mapping[str, Any]:
    """What a run has written. Raises ValueError where the file is not that."""
    try:
        run: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
        ratios_of(run)
        return {key: run[key] for key in ("measured", "machine", "effort", "benchmarks")}
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ValueError(f"{file} is not a run of these benchmarks: measure again, without --from") from None


def ratios_of(run: Mapping[str, Any]) -> dict[Ratio, Spread]:
    """Every ratio of a run to a peer."""
    return {
        (benchmark["name"], row["name"], peer): _better(figures["ours_to_this"], row["lower_is_better"])
        for benchmark in run["benchmarks"]
        for row in benchmark["rows"]
        for peer, figures in row["by"].items()
        if peer in PEERS.get(benchmark["name"], ()) and figures["ours_to_this"] is not None
    }


def compare(run: Mapping[str, Any], floors: Floors, names: Iterable[str]) -> list[Finding]:
    """What does not agree, in the order of `names`: fell, missing, rose or new. Empty where all is well.

    A ratio fell where its median is more than 5 % below the floor, even if some of its windows reach it. It rose where
    its median is more than 5 % above the floor and every window reaches it: then the floor can be raised.
    """
    measured = ratios_of(run)
    failures = {benchmark["name"]: benchmark["failure"] for benchmark in run["benchmarks"]}
    findings = []
    for name in names:
        for where in dict.fromkeys(where for where in (*floors.kept, *measured) if where[0] == name):
            ratio, floor = measured.get(where), floors.kept.get(where)
            if verdict := _verdict(ratio, floor):
                reason = failures.get(name, f"{name} was not run")
                findings.append(Finding(verdict, where, ratio, floor, reason))
    return findings


def keep(run: Mapping[str, Any], floors: Floors, names: Sequence[str]) -> Floors:
    """The floors after a run: its ratios replace all floors of the benchmarks that it measured, of those named.

    Raises ValueError for a quick run, which proves nothing.
    """
    if run["effort"]["quick"]:
        raise ValueError("a quick run proves nothing: run without --quick to keep floors")
    new = {where: ratio for where, ratio in ratios_of(run).items() if where[0] in names}
    names = list(dict.fromkeys(name for name, _, _ in new))
    kept = {where: floor for where, floor in floors.kept.items() if where[0] not in names}
    conditions = f"{run['measured']}, {run['machine']['cores']} cores, {run['effort']['windows']} windows"
    when = {
        benchmark["name"]: f"{conditions}, load averages {load['before']} → {load['after']}"
        for benchmark in run["benchmarks"]
        if benchmark["name"] in names
        for load in [benchmark["load_average"]]
    }
    kept |= {where: ratio.median for where, ratio in new.items()}
    ordered = {where: kept[where] for name in PEERS for where in kept if where[0] == name}
    return Floors(ordered, {**floors.measured, **when})


def _verdict(ratio: Spread | None, floor: float | None) -> Verdict | None:
    if ratio is None:
        return "missing"
    if floor is None:
        return "new"
    if ratio.median < floor * (1 - TOLERANCE):
        return "fell"
    if ratio.median > floor * (1 + TOLERANCE) and ratio.low >= floor:
        return "rose"
    return None


def _better(ours_to_this: Mapping[str, float], lower_is_better: bool) -> Spread:
    ratio = Spread(ours_to_this["median"], ours_to_this["low"], ours_to_this["high"])
    if not lower_is_better:
        return ratio
    return Spread(*(1 / figure if figure else math.inf for figure in (ratio.median, ratio.high, ratio.low)))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
