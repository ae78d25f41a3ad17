"""`daybook replay`: read models filled in bulk, from the log or the lake; or a consumer group begun again."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli.lake import default_lake
from infra.cli.output import fail, notes
from infra.cli.parked import Kafka
from infra.cli.rebuild import NAMES, build, projection_settings
from infra.cli.since import begin_again, running_broker
from services.projection.engine.settings import ProjectionSettings
from services.projection.read_models import READ_MODELS

if TYPE_CHECKING:
    from services.projection.engine.bulk import Lake

app = typer.Typer()
ALL = "all"


class ReplaySource(StrEnum):
    log = "log"
    lake = "lake"


@app.command(rich_help_panel="Read models")
def replay(
    into: Annotated[
        list[str] | None,
        typer.Option(metavar="READ_MODEL", help=f"{', '.join(NAMES)}, or {ALL}; may be repeated."),
    ] = None,
    source: Annotated[
        ReplaySource, typer.Option("--from", help="The lake as far as it goes, or the log alone.")
    ] = ReplaySource.log,
    lake: Annotated[
        Path | None, typer.Option(help="The lake's folder; default: DAYBOOK_LAKE, or in .daybook/.")
    ] = None,
    group: Annotated[str, typer.Option(help="Instead of a read model: a consumer group of your own.")] = "",
    topic: Annotated[list[str] | None, typer.Option(help="What the group reads; may be repeated.")] = None,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="The time to go back to: 2026-03-01T12:00:00Z, or an age: 15m."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before moving the group.")] = False,
    kafka: Kafka = "",
) -> None:
    """Rebuild read models in bulk from the first event, without downtime.

    One reading of the log fills several. The live tables serve queries until the new ones have caught up; then
    the new ones replace them, one read model after the other. Safe to interrupt.

    With --group, --topic and --since, move a stopped consumer group back to a time instead. Shows how many
    records it will receive twice, then asks.
    """
    match bool(into), (bool(group), bool(topic), bool(since)):
        case True, (False, False, False):
            _fill(into or [], source, lake)
        case False, (True, True, True):
            begin_again(kafka or running_broker(), group, topic or [], since, ask=not yes)
        case _:
            fail("use either --into READ_MODEL, or --group, --topic and --since together")


def _fill(into: list[str], source: ReplaySource, lake: Path | None) -> None:
    unknown = [name for name in into if name not in (*NAMES, ALL)]
    if unknown:
        fail(f"there is no read model {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = NAMES if ALL in into else into
    folder = (lake or default_lake(StackSettings())).absolute() if source is ReplaySource.lake else None
    began = time.perf_counter()
    settings = projection_settings()
    events = build(names, settings, _lake(settings, folder, names) if folder else None)
    seconds = time.perf_counter() - began
    notes.print(f"{seconds:.1f} s, {events / seconds:,.0f} events/s")


def _lake(settings: ProjectionSettings, folder: Path, names: list[str]) -> Lake:
    # Only here: PyArrow is slow to import, and the other commands do without.
    from analytics.lake.log_copy import LakeLogReplaced
    from analytics.lake.manifest import LakeDamaged, NoLake
    from analytics.offsets import LogUnreachable
    from infra.log.lake_runs import NotInTheLake, lake_for

    try:
        return lake_for(settings.kafka, folder, [model for model in READ_MODELS if model.name in names])
    except (LakeLogReplaced, LakeDamaged, NoLake, LogUnreachable, NotInTheLake) as error:
        fail(str(error))
