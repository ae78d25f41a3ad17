"""A drill's report as a table on the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from infra.drills.report import DrillReport


def report_table(report: DrillReport) -> Table:
    """Each promise beside what was measured."""
    table = Table("", "promised", "measured", "kept", title=f"{report.drill}, seed {report.seed}")
    for each in report.promises:
        kept = "yes" if each.kept else "[red]no[/red]"
        table.add_row(escape(each.what), escape(each.promised), escape(each.measured), kept)
    return table
