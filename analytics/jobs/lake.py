"""`spark-submit analytics/jobs/lake.py update|compact|show`: the log as Delta tables, kept up to date."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, assert_never

import typer

from analytics.jobs import arguments
from analytics.lake.tables import NoLake, compact, lake_report
from analytics.lake.writer import LakeBusy, LakeLogReplaced, update
from analytics.offsets import AheadOfLog, LogUnreachable
from analytics.session import JarsMissing, open_session


class _Step(StrEnum):
    update = "update"
    compact = "compact"
    show = "show"


KNOWN = (JarsMissing, LogUnreachable, NoLake, LakeBusy, LakeLogReplaced, AheadOfLog)


STEPS = {
    _Step.update: "copy the records that the lake does not have",
    _Step.compact: "merge small files; needs neither Spark nor the log",
    _Step.show: "show up to which offsets the lake is complete; needs neither Spark nor the log",
}


def run(
    step: Annotated[_Step, typer.Argument()],
    lake: Annotated[Path | None, typer.Option(help="Its folder; default: DAYBOOK_LAKE.")] = None,
) -> None:
    """Keep a copy of the events as Delta tables, one for each type."""
    settings = arguments.settings_or_exit()
    folder = (lake or settings.lake).absolute()
    with arguments.exit_on(*KNOWN):
        match step:
            case _Step.update:
                arguments.report_step("starting Spark")
                session = open_session("lake update", settings)
                arguments.report_step("reading the log")
                update(session, settings.kafka, folder, arguments.report_step)
            case _Step.compact:
                compact(folder)
            case _Step.show:
                pass
            case _:
                assert_never(step)
        print(lake_report(folder))


if __name__ == "__main__":
    arguments.run_job(run, "\n".join(f"{step:8} {about}" for step, about in STEPS.items()))
