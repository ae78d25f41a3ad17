"""P8: what a failover costs, from the drills, and what the passive site takes in memory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import psutil

from infra.base.settings import StackSettings
from infra.lab.drills.drill import DrillFailed
from infra.lab.drills.pair import Kind, Pair
from infra.lab.drills.report import DrillReport
from infra.lab.drills.switchover import PLANNED
from infra.lab.drills.takeover import unplanned
from infra.stack.site import Site
from tests.bench.harness import Effort, Measured, Say, Unmeasurable, Window
from tests.ports import free_base

BY_PLAN, AFTER_LOSS = "daybook failover --planned", "daybook failover --unplanned"
ROUNDS = 3
SETTLED = "seconds without acknowledged writes"
FIRST = "from the command to the first acknowledged write"
LOST = "acknowledged writes lost, seconds before the last one"
READS = "longest time without reads at the passive site"


def run(effort: Effort, say: Say) -> list[Measured]:
    folder = Path(tempfile.mkdtemp(prefix="daybook-bench-"))
    pair = Pair(StackSettings(home=folder / "home", port_base=free_base()))
    rounds = 1 if effort.quick else ROUNDS
    try:
        pair.start()
        memory = _memory(pair.roles()[1])
        switched = [_kept(PLANNED.run(pair, seed, folder, say), say) for seed in range(rounds)]
        lost = []
        for seed in range(rounds):
            lost.append(_kept(unplanned(Kind.DEAD).run(pair, seed, folder, say), say))
            if seed + 1 < rounds:
                pair.start()
    except DrillFailed as reason:
        raise Unmeasurable(str(reason)) from reason
    finally:
        pair.run("down")
        shutil.rmtree(folder)
    return [*_failovers(switched, lost), memory]


def _failovers(switched: list[DrillReport], lost: list[DrillReport]) -> list[Measured]:
    rest = _row("planned: no writes for", "s", BY_PLAN, switched, SETTLED)
    rest.reach("≤15 s, each time", max(rest.figures()), 15.0, at_least=False)
    first = _row("unplanned: first write after the command", "s", AFTER_LOSS, lost, FIRST)
    first.reach("≤30 s, each time", max(first.figures()), 30.0, at_least=False)
    window = _row("unplanned: lost before the last answer", "s", AFTER_LOSS, lost, LOST)
    window.reach("≤2 s, each time", max(window.figures()), 2.0, at_least=False)
    window.notes.append(
        "acknowledged commands lost, each listed: "
        + ", ".join(f"{report.figures['acknowledged commands lost']:.0f}" for report in lost)
    )
    reads = _row("unplanned: longest time without reads", "s", AFTER_LOSS, lost, READS)
    return [rest, first, window, reads]


def _row(what: str, unit: str, by: str, reports: list[DrillReport], figure: str) -> Measured:
    windows = {by: [Window(report.figures[figure]) for report in reports]}
    return Measured(what, unit, windows, lower_is_better=True)


def _kept(report: DrillReport, say: Say) -> DrillReport:
    """Check that the drill kept all promises but the timed ones; a drill that did not measures nothing."""
    say(f"{report.drill} {report.seed}: {'all held' if report.passed else 'not all held'}")
    timed = (SETTLED, FIRST, LOST, READS)
    broken = [promise for promise in report.promises if not promise.kept and promise.what not in timed]
    if broken:
        raise Unmeasurable(f"{report.drill} {report.seed}: {broken[0].what}: {broken[0].measured}")
    return report


def _memory(passive: Site) -> Measured:
    """Resident megabytes of each process of the passive site."""
    state = passive.journal.read()
    members = [member for member in state.members if member.pid is not None] if state else []
    windows = {member.name: [Window(_megabytes(member.pid or 0))] for member in members}
    total = sum(window[0].figure for window in windows.values())
    row = Measured(
        "memory of the passive site", "MB", {"all": [Window(total)], **windows}, lower_is_better=True
    )
    row.notes.append("PostgreSQL's processes share memory: its figure is an upper bound")
    return row


def _megabytes(pid: int) -> float:
    process = psutil.Process(pid)
    return float(
        sum(member.memory_info().rss for member in (process, *process.children(recursive=True))) / 1e6
    )
