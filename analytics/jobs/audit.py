"""`spark-submit analytics/jobs/audit.py`: exit code 0 identical, 1 not or keys stopped, 2 not audited."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from analytics.audit import AuditSources, audit
from analytics.evidence.report import Verdict, print_verdict, to_html
from analytics.jobs import arguments
from analytics.offsets import check_log
from analytics.session import open_session
from analytics.terminal import Console


def run(
    expectation: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="What the loader expects (JSON lines).")
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds for the read models to catch up.")] = 60,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=arguments.writable_folder, metavar="DIR", help="Folder for audit.json and audit.html."
        ),
    ] = None,
) -> None:
    """Compare the log, the read models and Spark's aggregates."""
    settings = arguments.settings_or_exit()
    sources = AuditSources(settings.kafka, settings.database_url, expectation=expectation)
    with arguments.exit_on_failure():
        check_log(sources.kafka, (sources.orders, sources.inventory))
        arguments.report_step("starting Spark")
        verdict = audit(open_session("daybook audit", settings), sources, wait, arguments.report_step)
    print_verdict(Console(width=None if sys.stdout.isatty() else 140), verdict)
    with arguments.exit_on_failure():
        if out:
            write_report(verdict, out)
    raise typer.Exit(arguments.IDENTICAL if verdict.identical else arguments.DIFFERENT)


def write_report(verdict: Verdict, folder: Path) -> None:
    """Writes both files, each as a whole. Whatever else is in the folder stays."""
    folder.mkdir(exist_ok=True)
    for name, content in (("audit.json", verdict.to_json()), ("audit.html", to_html(verdict))):
        fresh = folder / f".{name}.new"
        fresh.write_text(content, "utf-8")
        fresh.replace(folder / name)


if __name__ == "__main__":
    arguments.run_job(run)
