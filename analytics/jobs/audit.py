"""`spark-submit analytics/jobs/audit.py`: exit code 0 identical, 1 not or keys stopped, 2 not audited."""

import argparse
import sys

from analytics.audit import AuditSources, audit
from analytics.evidence.read_models import DatabaseUnreachable
from analytics.evidence.report import print_verdict, to_html
from analytics.evidence.verdict import BadExpectation
from analytics.jobs import arguments
from analytics.jobs.replacement import replaced
from analytics.offsets import AheadOfLog, LogUnreachable, ReplayIncomplete
from analytics.session import JarsMissing, open_session
from analytics.terminal import Console

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="audit", description="Log = read models = Spark?")
    parser.add_argument("--expectation", type=arguments.existing_file, help="what the loader expects (JSON)")
    parser.add_argument("--wait", type=float, default=60, help="seconds for the read models to catch up")
    parser.add_argument("--out", type=arguments.writable_folder, help="folder for audit.json and audit.html")
    given, settings = parser.parse_args(), arguments.settings_or_exit(parser)
    sources = AuditSources(settings.kafka, settings.database_url, expectation=given.expectation)
    known = (JarsMissing, LogUnreachable, DatabaseUnreachable, ReplayIncomplete, AheadOfLog, BadExpectation)
    with arguments.failures_said(*known):
        arguments.say("starting Spark")
        verdict = audit(open_session("daybook audit", settings), sources, given.wait, arguments.say)
    if given.out:
        with replaced(given.out) as folder:
            folder.mkdir()
            (folder / "audit.json").write_text(verdict.to_json(), "utf-8")
            (folder / "audit.html").write_text(to_html(verdict), "utf-8")
    print_verdict(Console(width=None if sys.stdout.isatty() else 140), verdict)
    sys.exit(arguments.IDENTICAL if verdict.identical else arguments.DIFFERENT)
