"""A drill's report: kept as files, and as a table on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from analytics.terminal import Table
from infra.cli.output import fail, results
from infra.lab.drills.report import DrillReport, write


def told(report: DrillReport, folder: Path) -> None:
    """Keep the report in `folder` and show it; exit code 1 where a promise was not kept."""
    write(report, folder)
    results.print(report_table(report))
    results.print(f"{folder / 'report.md'}")
    if not report.passed:
        fail("not every promise was kept")


def report_table(report: DrillReport) -> Table:
    """Each promise beside what was measured."""
    table = Table("", "promised", "measured", "kept", title=f"{report.drill}, seed {report.seed}")
    for each in report.promises:
        kept = "yes" if each.kept else Text("no", "red")
        table.add_row(each.what, each.promised, each.measured, kept)
    return table
