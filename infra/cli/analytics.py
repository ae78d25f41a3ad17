"""`daybook analytics`: the events as Delta tables, and the marts, from the whole history or as of a moment."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from analytics.settings import located
from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli.audit import NOT_MADE, lake_location, marts_location, run_job
from infra.cli.inspect import own_settings, running_settings
from infra.cli.load import DAY
from infra.cli.output import fail, results

app = typer.Typer(no_args_is_help=True, help="Analyse the whole history: the lake and the marts.")


@app.command()
def lake(
    step: Annotated[Literal["update", "compact", "show"], typer.Argument(help="update, compact or show.")],
    folder: Annotated[
        str, typer.Option("--lake", help="Its folder or URI; default: DAYBOOK_LAKE, or in .daybook/.")
    ] = "",
    *,
    log_replaced: Annotated[
        bool,
        typer.Option("--log-replaced", help="The log is another one now: a site was rebuilt, or took over."),
    ] = False,
) -> None:
    """Copy the events to Delta tables, each once; later runs copy only new events.

    update: copy new events. compact: merge many files into few. show: print to which offsets the lake is complete,
    and which events it contains. To copy the whole log anew, remove the folder and update.

    Exit code 0: done. 2: it failed; readers see the lake as it was before.
    """
    settings = running_settings(NOT_MADE) if step == "update" else own_settings()
    more = ["--log-replaced"] if log_replaced else []
    raise typer.Exit(
        run_job("analytics.jobs.lake", [step, "--lake", lake_location(settings, folder), *more], settings)
    )


@app.command()
def run(
    marts: Annotated[list[str] | None, typer.Argument(help="Their names; default: all.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="T", help="A day (its end) or a time, UTC.")] = None,
    knowledge: Annotated[
        Literal["happened", "recorded"],
        typer.Option(
            help="With --as-of: what had happened by then (business time), or what the lake had recorded by then."
        ),
    ] = "happened",
    known_by: Annotated[
        str | None,
        typer.Option(metavar="T", help="Only what the lake had recorded by then, also with --as-of."),
    ] = None,
    source: Annotated[
        Literal["log", "lake"], typer.Option("--from", help="Where to read the events.")
    ] = "log",
    as_read_by: Annotated[
        str, typer.Option(help="Only the events that this earlier output of a mart has read.")
    ] = "",
    out: Annotated[
        str, typer.Option(help="Folder or URI for the output; default: DAYBOOK_MARTS, or in .daybook/.")
    ] = "",
) -> None:
    """Build marts with Spark: each a Delta table, with the offsets to which the log was read.

    `daybook analytics list` prints their names, and the question that each answers.

    Exit code 0: done. 2: it failed; marts that were not finished are unchanged.
    """
    settings = own_settings() if source == "lake" else running_settings(NOT_MADE)
    target = marts_location(settings, out)
    arguments = [*(marts or ()), "--out", target, "--from", source, "--knowledge", knowledge]
    if source == "lake":
        arguments += ["--lake", lake_location(settings)]
    arguments += [
        part for option, t in (("--as-of", as_of), ("--known-by", known_by)) if t for part in (option, t)
    ]
    if as_read_by:
        arguments += ["--as-read-by", located(as_read_by)]
    raise typer.Exit(run_job("analytics.jobs.marts", arguments, settings))


@app.command("list")
def list_marts() -> None:
    """List the marts with their grain and the question that each answers."""
    # Imported here: PySpark is slow to import, and the other commands do not need it.
    from analytics.marts.catalogue import MARTS

    for name, mart in MARTS.items():
        results.print(f"{name:17} by {', '.join(mart.grain):32} {mart.question}")


@app.command()
def catalogue() -> None:
    """Write a page about all marts: columns, owners, what they are made of, rows, age, rules, the last audit."""
    # Imported here, as above.
    from analytics.marts.catalogue_page import catalogue_page

    settings = own_settings()
    marts = marts_location(settings)
    target = (settings.home / "marts" if "://" in marts else Path(marts)).absolute() / "index.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(catalogue_page(marts, settings.home / "audit" / "audit.json", datetime.now(UTC)))
    results.print(f"{target}")


DIFFERENT = 1


@app.command("check-source")
def check_source(
    marts: Annotated[str, typer.Option(help="The output of `daybook analytics run`.")] = "",
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
    from infra.lab.source_check.checks import NotTogether, check, loaded_days, require_together

    folder = marts_location(StackSettings(), marts)
    try:
        require_together(folder)
    except NotTogether as reason:
        fail(str(reason), NOT_MADE)
    days = loaded_days(folder)
    if not days:
        fail("the shop has no orders", NOT_MADE)
    begin = first.date() if first else days[0]
    end = last.date() if last else days[1]
    checks = list(check(folder, begin, end))
    table = Table("mart", "figure", "keys", "differing", title=f"{begin} to {end}", title_justify="left")
    for figure in checks:
        table.add_row(figure.mart, figure.figure, f"{figure.keys:,}", f"{figure.differing:,}")
    results.print(table)
    for figure in checks:
        for line in figure.first:
            results.print(f"{figure.mart}, {figure.figure}: {line}")
    raise typer.Exit(DIFFERENT if any(figure.differing for figure in checks) else 0)
