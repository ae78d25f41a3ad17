"""`spark-submit analytics/jobs/marts.py [mart…]`: marts as Parquet, and how far was read beside each."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from analytics.as_of import Knowledge, moment
from analytics.jobs import arguments
from analytics.jobs.inputs import Wanted, events, sources
from analytics.jobs.outputs import OutputReading, preview, read_ends, write
from analytics.lake.manifest import LakeDamaged, NoLake
from analytics.marts.catalogue import MARTS
from analytics.offsets import AheadOfLog, LogUnreachable, Offsets
from analytics.session import JarsMissing, open_session
from analytics.settings import AnalyticsSettings
from analytics.terminal import Console

NAMED_RECORDS = 20
WIDTH = 160


def run(names: Sequence[str], wanted: Wanted, out: Path, settings: AnalyticsSettings) -> None:
    """Write the marts one after the other, and show the first rows of each.

    Raises JarsMissing, LogUnreachable, AheadOfLog, NoLake and LakeDamaged.
    """
    arguments.say("starting Spark")
    session = open_session("marts", settings)
    source = "log" if wanted.lake is None else "lake"
    arguments.say(f"reading the {source}")
    log = events(session, wanted).kept()
    found = log.set_aside.persist()
    first = tuple(row.asDict() for row in found.limit(NAMED_RECORDS).collect())
    at = wanted.moment.isoformat() if wanted.moment else None
    reading = OutputReading(source, log.ends, at, wanted.knowledge if at else None, found.count(), first)
    wide = Console(width=None if sys.stdout.isatty() else WIDTH)
    made_of = sources(session, log, wanted)
    made_of.orders.persist()
    out.mkdir(exist_ok=True)
    for number, name in enumerate(names, start=1):
        arguments.say(f"{name}: {number} of {len(names)}")
        write(MARTS[name].build(made_of), name, MARTS[name], reading, out / name)
        wide.print(preview(name, out / name))
    wide.print(f"{out}: read to {dict(log.ends)}, {reading.set_aside} records set aside")


def _mart(text: str) -> str:
    if text not in MARTS:
        raise argparse.ArgumentTypeError(f"there is no mart {text!r}; there are {', '.join(MARTS)}")
    return text


def _moment(text: str) -> datetime:
    try:
        return moment(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a day nor a time of ISO 8601") from error


def _offsets(text: str) -> Offsets:
    try:
        return read_ends(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    known = argparse.ArgumentParser(
        prog="marts",
        description="Marts from the whole history.",
        epilog="\n".join(f"{name:17} {mart.question}" for name, mart in MARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known.add_argument("marts", nargs="*", type=_mart, metavar="mart", help="default: all of them")
    known.add_argument(
        "--out",
        type=arguments.writable_folder,
        required=True,
        help="each mart (re)places its own folder in it",
    )
    known.add_argument("--from", dest="source", choices=("log", "lake"), default="log")
    known.add_argument("--lake", type=Path, help="the lake's folder; default: DAYBOOK_LAKE")
    known.add_argument("--as-of", type=_moment, metavar="T", help="a day (its end) or a time, UTC")
    known.add_argument(
        "--knowledge",
        type=Knowledge,
        choices=list(Knowledge),
        default=Knowledge.HAPPENED,
        help="as of T: what had happened by then in business time, or what was recorded by then",
    )
    known.add_argument(
        "--as-read-by", type=_offsets, metavar="DIR", help="only what this earlier output of a mart has seen"
    )
    return known


if __name__ == "__main__":
    command = parser()
    given, settings = command.parse_args(), arguments.settings_or_exit(command)
    lake = (given.lake or settings.lake) if given.source == "lake" else None
    wanted = Wanted(settings.kafka, lake, given.as_read_by, given.as_of, given.knowledge)
    with arguments.failures_said(JarsMissing, LogUnreachable, AheadOfLog, NoLake, LakeDamaged):
        run(given.marts or list(MARTS), wanted, given.out, settings)
