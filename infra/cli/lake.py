"""`daybook analytics lake`: the events as Parquet."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli.audit import NOT_MADE, run_job
from infra.cli.inspect import own_settings, running_settings

app = typer.Typer()


class LakeStep(StrEnum):
    update = "update"
    compact = "compact"
    rebuild = "rebuild"
    show = "show"


@app.command()
def lake(
    step: Annotated[LakeStep, typer.Argument(help="update, compact, rebuild or show.")],
    folder: Annotated[
        Path | None, typer.Option("--lake", help="Its folder; default: DAYBOOK_LAKE, or in .daybook/.")
    ] = None,
) -> None:
    """Copy the events to Parquet, each once; later runs copy only new events.

    update: copy new events. compact: merge many files into few. rebuild: copy the whole log, then replace the
    lake. show: print to which offsets it is complete, and which events it contains.

    Exit code 0: done. 2: it failed, and the lake is unchanged.
    """
    of_the_log = step in (LakeStep.update, LakeStep.rebuild)
    settings = running_settings(NOT_MADE) if of_the_log else own_settings()
    place = (folder or default_lake(settings)).absolute()
    raise typer.Exit(run_job("analytics.jobs.lake", [step.value, "--lake", str(place)], settings))


def default_lake(settings: StackSettings) -> Path:
    """Where the lake is unless a command is told otherwise."""
    return Path(os.environ.get("DAYBOOK_LAKE") or settings.home / "lake")
