"""`spark-submit analytics/jobs/lake.py update|compact|rebuild|show`: the log as Parquet, kept up to date."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, assert_never

import typer

from analytics.jobs import arguments
from analytics.lake.manifest import LakeDamaged, Manifest, NoLake, lake_report, read_manifest
from analytics.lake.writer import LakeBusy, LakeLogReplaced, compact, rebuild, update
from analytics.offsets import AheadOfLog, LogUnreachable
from analytics.session import JarsMissing, open_session
from analytics.settings import AnalyticsSettings


class _Step(StrEnum):
    update = "update"
    compact = "compact"
    rebuild = "rebuild"
    show = "show"


KNOWN = (JarsMissing, LogUnreachable, NoLake, LakeBusy, LakeDamaged, LakeLogReplaced, AheadOfLog)


STEPS = {
    _Step.update: "copy the records that the lake does not have",
    _Step.compact: "merge small files",
    _Step.rebuild: "copy the log from its beginning, then replace the lake",
    _Step.show: "show up to which offsets the lake is complete; needs neither Spark nor the log",
}


def lake_after(step: _Step, folder: Path, settings: AnalyticsSettings) -> Manifest:
    """Runs the step; returns the lake after it."""
    if step is _Step.show:
        return read_manifest(folder)
    arguments.report_step("starting Spark")
    session = open_session(f"lake {step}", settings)
    arguments.report_step("compacting" if step is _Step.compact else "reading the log")
    match step:
        case _Step.update:
            return update(session, settings.kafka, folder, arguments.report_step)
        case _Step.rebuild:
            return rebuild(session, settings.kafka, folder, arguments.report_step)
        case _Step.compact:
            return compact(session, folder)
        case _:
            assert_never(step)


def run(
    step: Annotated[_Step, typer.Argument()],
    lake: Annotated[Path | None, typer.Option(help="Its folder; default: DAYBOOK_LAKE.")] = None,
) -> None:
    """Keep a copy of the events as Parquet, by topic and day."""
    settings = arguments.settings_or_exit()
    folder = (lake or settings.lake).absolute()
    with arguments.exit_on(*KNOWN):
        content = lake_after(step, folder, settings)
    print(lake_report(content, folder))


if __name__ == "__main__":
    arguments.run_job(run, "\n".join(f"{step:8} {about}" for step, about in STEPS.items()))
