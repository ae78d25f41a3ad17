"""`spark-submit analytics/jobs/lake.py update|compact|show`: the log as Delta tables, kept up to date."""

from typing import Annotated, Literal

import typer

from analytics.envelope import EVENT_TOPICS
from analytics.jobs import arguments
from analytics.lake.tables import compact, lake_report
from analytics.lake.writer import update
from analytics.offsets import check_log
from analytics.session import open_session
from analytics.settings import located

STEPS = {
    "update": "copy the records that the lake does not have",
    "compact": "merge small files; needs neither Spark nor the log",
    "show": "show up to which offsets the lake is complete; needs neither Spark nor the log",
}


def run(
    step: Annotated[Literal["update", "compact", "show"], typer.Argument()],
    lake: Annotated[str, typer.Option(help="Its folder or URI; default: DAYBOOK_LAKE.")] = "",
    *,
    log_replaced: Annotated[
        bool,
        typer.Option(
            "--log-replaced", help="The log is another now: the site was rebuilt, or another took over."
        ),
    ] = False,
) -> None:
    """Keep a copy of the events as Delta tables, one for each type."""
    settings = arguments.settings_or_exit()
    folder = located(lake or settings.lake)
    with arguments.exit_on_failure():
        if step == "update":
            check_log(settings.kafka, EVENT_TOPICS)
            arguments.report_step("starting Spark")
            session = open_session("lake update", settings)
            arguments.report_step("reading the log")
            update(session, settings.kafka, folder, arguments.report_step, replaced=log_replaced)
        elif step == "compact":
            compact(folder)
        print(lake_report(folder))


if __name__ == "__main__":
    arguments.run_job(run, "\n".join(f"{step:8} {about}" for step, about in STEPS.items()))
