"""`spark-submit analytics/jobs/held_by_hour.py --out DIR`: appends the records since the last run."""

from pathlib import Path
from typing import Annotated

import typer

from analytics.envelope import EVENT_TOPICS
from analytics.jobs import arguments
from analytics.live_log import append_new, held_by_hour, live
from analytics.offsets import check_log
from analytics.session import open_session


def run(
    out: Annotated[
        Path,
        typer.Option(parser=arguments.writable_folder, metavar="DIR", help="rows/ and checkpoint/ in it."),
    ],
) -> None:
    """Write ordered and reserved lines by hour, each hour when it is closed."""
    settings = arguments.settings_or_exit()
    with arguments.exit_on_failure():
        check_log(settings.kafka, EVENT_TOPICS)
        arguments.report_step("starting Spark")
        session = open_session("held by hour", settings)
        arguments.report_step("reading what is new")
        append_new(held_by_hour(live(session, settings.kafka)), out)
        print(f"{out}: {session.read.parquet(str(out / 'rows')).count()} hours are closed")


if __name__ == "__main__":
    arguments.run_job(run)
