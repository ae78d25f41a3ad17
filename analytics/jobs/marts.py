"""`spark-submit analytics/jobs/marts.py [mart…]`: marts as Parquet, and how far was read beside each."""

import sys
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from analytics.as_of import Knowledge, moment
from analytics.jobs import arguments
from analytics.jobs.inputs import Selection, events, sources
from analytics.jobs.outputs import OutputReading, preview, read_ends, write
from analytics.lake.manifest import LakeDamaged, NoLake
from analytics.marts.catalogue import MARTS
from analytics.offsets import AheadOfLog, LogUnreachable, Offsets
from analytics.session import JarsMissing, open_session
from analytics.settings import AnalyticsSettings
from analytics.terminal import Console

NAMED_RECORDS = 20
WIDTH = 160


def run(names: Sequence[str], selection: Selection, out: Path, settings: AnalyticsSettings) -> None:
    """Write the marts one after the other, and show the first rows of each. Raises JarsMissing, LogUnreachable,
    AheadOfLog, NoLake and LakeDamaged."""
    arguments.report_step("starting Spark")
    session = open_session("marts", settings)
    source = "log" if selection.lake is None else "lake"
    arguments.report_step(f"reading the {source}")
    log = events(session, selection).kept()
    set_aside = log.set_aside.persist()
    first = tuple(row.asDict() for row in set_aside.limit(NAMED_RECORDS).collect())
    as_of = selection.moment.isoformat() if selection.moment else None
    reading = OutputReading(
        source, log.ends, as_of, selection.knowledge if as_of else None, set_aside.count(), first
    )
    wide = Console(width=None if sys.stdout.isatty() else WIDTH)
    made_of = sources(session, log, selection)
    made_of.orders.persist()
    out.mkdir(exist_ok=True)
    for number, name in enumerate(names, start=1):
        arguments.report_step(f"{name}: {number} of {len(names)}")
        write(MARTS[name].build(made_of), name, MARTS[name], reading, out / name)
        wide.print(preview(name, out / name))
    wide.print(f"{out}: read to {dict(log.ends)}, {reading.set_aside} records set aside")


def _mart(text: str) -> str:
    if text not in MARTS:
        raise typer.BadParameter(f"there is no mart {text!r}; there are {', '.join(MARTS)}")
    return text


def _moment(text: str) -> datetime:
    try:
        return moment(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is neither a day nor a time of ISO 8601") from error


def _offsets(text: str) -> Offsets:
    try:
        return read_ends(Path(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


class _Source(StrEnum):
    log = "log"
    lake = "lake"


def make(
    marts: Annotated[list[str] | None, typer.Argument(parser=_mart, metavar="[mart]...")] = None,
    *,
    out: Annotated[
        Path,
        typer.Option(
            parser=arguments.writable_folder,
            metavar="DIR",
            help="Each mart (re)places its own folder in it.",
        ),
    ],
    source: Annotated[_Source, typer.Option("--from")] = _Source.log,
    lake: Annotated[Path | None, typer.Option(help="The lake's folder; default: DAYBOOK_LAKE.")] = None,
    as_of: Annotated[
        datetime | None, typer.Option(parser=_moment, metavar="T", help="A day (its end) or a time, UTC.")
    ] = None,
    knowledge: Annotated[
        Knowledge,
        typer.Option(
            help="As of T: what had happened by then in business time, or what was recorded by then."
        ),
    ] = Knowledge.HAPPENED,
    as_read_by: Annotated[
        Offsets | None,
        typer.Option(
            parser=_offsets, metavar="DIR", help="Only what this earlier output of a mart has seen."
        ),
    ] = None,
) -> None:
    """Marts from the whole history; all of them where none is named."""
    settings = arguments.settings_or_exit()
    folder = (lake or settings.lake) if source is _Source.lake else None
    selection = Selection(settings.kafka, folder, as_read_by, as_of, knowledge)
    with arguments.exit_on(JarsMissing, LogUnreachable, AheadOfLog, NoLake, LakeDamaged):
        run(marts or list(MARTS), selection, out, settings)


if __name__ == "__main__":
    arguments.run_job(make, "\n".join(f"{name:17} {mart.question}" for name, mart in MARTS.items()))
