"""`daybook analytics`: the events as Delta tables, and the marts, from the whole history or as of a moment."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from infra.cli import check_source
from infra.cli.audit import NOT_MADE, default_lake, default_marts, run_job
from infra.cli.inspect import own_settings, running_settings
from infra.cli.output import results

app = typer.Typer(no_args_is_help=True, help="Analyse the whole history: the lake and the marts.")


class LakeStep(StrEnum):
    update = "update"
    compact = "compact"
    show = "show"


@app.command()
def lake(
    step: Annotated[LakeStep, typer.Argument(help="update, compact or show.")],
    folder: Annotated[
        Path | None, typer.Option("--lake", help="Its folder; default: DAYBOOK_LAKE, or in .daybook/.")
    ] = None,
) -> None:
    """Copy the events to Delta tables, each once; later runs copy only new events.

    update: copy new events. compact: merge many files into few. show: print to which offsets the lake is complete,
    and which events it contains. To copy the whole log anew, remove the folder and update.

    Exit code 0: done. 2: it failed; readers see the lake as it was before.
    """
    settings = running_settings(NOT_MADE) if step is LakeStep.update else own_settings()
    target = (folder or default_lake(settings)).absolute()
    raise typer.Exit(run_job("analytics.jobs.lake", [step.value, "--lake", str(target)], settings))


class MartSource(StrEnum):
    log = "log"
    lake = "lake"


class KnowledgeChoice(StrEnum):
    happened = "happened"
    recorded = "recorded"


@app.command()
def run(
    marts: Annotated[list[str] | None, typer.Argument(help="Their names; default: all.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="T", help="A day (its end) or a time, UTC.")] = None,
    knowledge: Annotated[
        KnowledgeChoice,
        typer.Option(
            help="With --as-of: what had happened by then (business time), or what the lake had recorded by then."
        ),
    ] = KnowledgeChoice.happened,
    source: Annotated[MartSource, typer.Option("--from", help="Where to read the events.")] = MartSource.log,
    as_read_by: Annotated[
        Path | None, typer.Option(help="Only the events that this earlier output of a mart has read.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the output; default: DAYBOOK_MARTS, or in .daybook/.")
    ] = None,
) -> None:
    """Build marts with Spark: each a folder of Parquet, with the offsets to which the log was read.

    Exit code 0: done. 2: it failed; marts that were not finished are unchanged.
    """
    settings = own_settings() if source is MartSource.lake else running_settings(NOT_MADE)
    target = (out or default_marts(settings)).absolute()
    arguments = [*(marts or ()), "--out", str(target), "--from", source, "--knowledge", knowledge]
    if source is MartSource.lake:
        arguments += ["--lake", str(default_lake(settings).absolute())]
    if as_of is not None:
        arguments += ["--as-of", as_of]
    if as_read_by is not None:
        arguments += ["--as-read-by", str(as_read_by.absolute())]
    raise typer.Exit(run_job("analytics.jobs.marts", arguments, settings))


@app.command("list")
def list_marts() -> None:
    """List the marts with their grain and the question that each answers."""
    # Imported here: PySpark is slow to import, and the other commands do not need it.
    from analytics.marts.catalogue import MARTS

    for name, mart in MARTS.items():
        results.print(f"{name:17} by {', '.join(mart.grain):32} {mart.question}")


app.add_typer(check_source.app)
