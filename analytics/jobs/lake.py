"""`spark-submit analytics/jobs/lake.py update|compact|rebuild|show`: the log as Parquet, kept up to date."""

import argparse
from pathlib import Path

from analytics.jobs import arguments
from analytics.lake.compaction import compact
from analytics.lake.log_copy import LakeOfAnotherLog, rebuild, update
from analytics.lake.manifest import LakeDamaged, Manifest, NoLake, read_manifest
from analytics.lake.parts import LakeBusy
from analytics.lake.report import described
from analytics.offsets import AheadOfLog, LogUnreachable
from analytics.session import JarsMissing, open_session
from analytics.settings import AnalyticsSettings

STEPS = {
    "update": "copy what the log has more than the lake",
    "compact": "make few files of many",
    "rebuild": "copy the log from its beginning, then take the lake's place",
    "show": "say how far the lake is complete; needs neither Spark nor the log",
}
KNOWN = (JarsMissing, LogUnreachable, NoLake, LakeBusy, LakeDamaged, LakeOfAnotherLog, AheadOfLog)


def run(step: str, folder: Path, settings: AnalyticsSettings) -> Manifest:
    """Do the step; the lake as it is then."""
    if step == "show":
        return read_manifest(folder)
    arguments.say("starting Spark")
    session = open_session(f"lake {step}", settings)
    arguments.say("compacting" if step == "compact" else "reading the log")
    match step:
        case "update":
            return update(session, settings.kafka, folder, arguments.say)
        case "rebuild":
            return rebuild(session, settings.kafka, folder, arguments.say)
        case _:
            return compact(session, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="lake",
        description="The events as Parquet, by topic and day.",
        epilog="\n".join(f"{name:8} {about}" for name, about in STEPS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--lake", type=Path, help="its folder; default: DAYBOOK_LAKE")
    given, settings = parser.parse_args(), arguments.settings_or_exit(parser)
    folder = (given.lake or settings.lake).absolute()
    with arguments.failures_said(*KNOWN):
        lake = run(given.step, folder, settings)
    print(described(lake, folder))
