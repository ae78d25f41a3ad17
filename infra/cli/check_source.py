"""`daybook analytics check-source`: the marts beside the retail file itself."""

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer

from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli.audit import default_marts
from infra.cli.load import DAY
from infra.cli.output import notes, results

app = typer.Typer()
DIFFERENT, NOT_MADE = 1, 2


@app.command("check-source")
def check_source(
    marts: Annotated[Path | None, typer.Option(help="The output of `daybook analytics run`.")] = None,
    first: Annotated[
        datetime | None, typer.Option("--from", formats=[DAY], help="The first loaded day.")
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", formats=[DAY], help="The last loaded day.")] = None,
) -> None:
    """Count the retail file with independent code, and compare the result with the marts of the loaded shop.

    Without days: from the first to the last day on which the shop has an order.
    docs/reference/real-input.md lists which figures must agree exactly, and which cannot.

    Exit code 0: all agree. 1: some differ; prints some of their keys. 2: there is nothing to compare.
    """
    # Only here: PySpark, which knows the marts' bounds, is slow to import.
    from infra.lab.source_check.checks import NotTogether, Outputs, check
    from infra.lab.source_check.source import read_source

    folder = marts or default_marts(StackSettings())
    try:
        outputs = Outputs(folder)
    except NotTogether as reason:
        notes.print(f"daybook: {reason}")
        raise typer.Exit(NOT_MADE) from reason
    days = [row["day"] for row in outputs["order_funnel"]]
    if not days:
        notes.print("daybook: the shop has no orders")
        raise typer.Exit(NOT_MADE)
    begin: date = first.date() if first else min(days)
    end: date = last.date() if last else max(days)
    checks = check(read_source(), outputs, begin, end)
    table = Table("mart", "figure", "keys", "differing", title=f"{begin} to {end}", title_justify="left")
    for figure in checks:
        table.add_row(figure.mart, figure.figure, f"{figure.keys:,}", f"{figure.differing:,}")
    results.print(table)
    for figure in checks:
        for line in figure.first:
            results.print(f"{figure.mart}, {figure.figure}: {line}")
    raise typer.Exit(DIFFERENT if any(figure.differing for figure in checks) else 0)
