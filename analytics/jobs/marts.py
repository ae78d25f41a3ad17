"""`spark-submit analytics/jobs/marts.py [mart…]`: marts as Delta tables, each with the offsets that were read."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

import typer
from pyspark.sql import SparkSession

from analytics import staging
from analytics.delta import Location
from analytics.envelope import EVENT_TOPICS, with_columns
from analytics.events import AsOf, check_streams, moment
from analytics.jobs import arguments
from analytics.jobs.lake_marts import ORDERS, LakeMarts
from analytics.jobs.outputs import OutputReading, SetAside, check_place, preview, read_earlier, write
from analytics.lake.reader import LakeLog, open_lake
from analytics.lake.tables import Commit, NotRecorded, check_rows, name_of_log, read_commits
from analytics.marts.catalogue import MARTS, Mart, Sources
from analytics.marts.checks import check_fresh
from analytics.offsets import check_log, check_within, stable_ends, topic_ids
from analytics.replay import Replay, read_topics, replay
from analytics.session import open_session
from analytics.settings import AnalyticsSettings, located
from analytics.terminal import Console, Table
from contracts.lock import load_lock

# Topics of the commands of orders: a shop of an earlier version wrote them to the topic of the API's commands.
COMMANDS = ("inventory.inbox", "inventory.commands")
EARLIER = "the earlier output"
Knowledge: TypeAlias = Literal["happened", "recorded"]
"""What is meant by a moment: what had happened by then, or what was recorded."""


@dataclass(frozen=True)
class Selection:
    """`lake` None: from the log. `earlier`: only what an earlier output saw. `moment`: only what had happened by then;
    `known_by`: only what the lake had recorded by then."""

    kafka: str
    lake: Location | None = None
    earlier: OutputReading | None = None
    moment: datetime | None = None
    known_by: datetime | None = None


def events(session: SparkSession, selection: Selection) -> Replay:
    """Returns the events that an earlier output saw, or all, of any business time. Raises LogUnreachable, AheadOfLog,
    NoLake and NotRecorded."""
    if selection.lake is None:
        ends = selection.earlier.ends if selection.earlier else None
        if ends is not None:
            _check_log(selection, name_of_log(topic_ids(selection.kafka, ends)))
            check_within(stable_ends(selection.kafka, ends), {EARLIER: ends})
        return replay(session, selection.kafka, ends=ends, kept=True)
    lake = open_lake(session, selection.lake, selection.known_by)
    if selection.earlier is None:
        return lake
    _check_log(selection, lake.folder.rpartition("/")[2])
    check_within(lake.ends, {EARLIER: selection.earlier.ends})
    return lake.before(selection.earlier.ends)


def _check_log(selection: Selection, log: str) -> None:
    """Refuses an output of another log. It may not say which: then its offsets decide."""
    if selection.earlier and selection.earlier.log not in ("", log):
        raise NotRecorded(f"{EARLIER} has seen another log, {selection.earlier.log}, which was replaced")


def sources(session: SparkSession, log: Replay, selection: Selection) -> Sources:
    """Returns the frames of the marts. Raises LogUnreachable. It reads commands only with the whole log: they have no
    business time, are not in the lake, and no output stores their offsets."""
    if selection.moment is not None:
        return Sources(AsOf(log, selection.moment))
    if selection.lake is not None or selection.earlier is not None:
        return Sources(log)
    commands = with_columns(read_topics(session, selection.kafka, stable_ends(selection.kafka, COMMANDS)))
    return Sources(log, staging.outgoing_commands(commands, load_lock()))


NAMED_RECORDS, WIDTH = 20, 160


def run(names: Sequence[str], selection: Selection, out: Location, settings: AnalyticsSettings) -> None:
    """Writes the marts and prints the first rows of each. What an earlier output has of a lake's mart is kept where no
    event has come since. Raises NoSession, LogUnreachable, AheadOfLog, NoLake, NotRecorded, BrokenStream and Unfit.
    """
    for name in names:
        check_place(name, out)
    commits = list[Commit]()
    if selection.lake is not None and selection == Selection(selection.kafka, selection.lake):  # all of it
        commits = read_commits(selection.lake)
        for name in names:
            check_fresh(MARTS[name], commits[-1].time, datetime.now(UTC))
    if selection.lake is None:
        check_log(selection.kafka, EVENT_TOPICS)
    arguments.report_step("starting Spark")
    publish(open_session("marts", settings), names, selection, commits, out)


def publish(
    session: SparkSession,
    names: Sequence[str],
    selection: Selection,
    commits: Sequence[Commit],
    out: Location,
) -> None:
    """The same in an open session. `commits`: those of the lake, if all of it is read; otherwise none."""
    source = "log" if selection.lake is None else "lake"
    arguments.report_step(f"reading the {source}")
    log = events(session, selection)
    if isinstance(log, LakeLog):
        check_rows(log.folder, log.ends, log.lock)
    reading = _reading(log, source, selection)
    wide = Console(width=None if sys.stdout.isatty() else WIDTH)
    if isinstance(log, LakeLog) and selection.lake is not None and commits:
        marts = LakeMarts(session, selection.lake, commits, log, out, reading)
        together, make = marts.check(names), marts.bring_up_to_date
    else:
        check_streams(log.events)
        together, made_of = False, sources(session, log, selection)
        made_of.orders.persist()

        def make(mart: Mart) -> None:
            write(mart.build(made_of), mart, reading, out)

    def build(name: str) -> Table:
        arguments.report_step(f"{name}: {names.index(name) + 1} of {len(names)}")
        make(MARTS[name])
        return preview(MARTS[name], out)

    # Of few rows, plans are most of the work: two at a time, after those to which, or of which, others are.
    referred = [name for name in names if any(name in MARTS[other].refers_to for other in names)]
    with ThreadPoolExecutor(2 if together and ORDERS in referred else 1) as pool:
        for name in referred:
            wide.print(build(name))
        for shown in pool.map(build, [name for name in names if name not in referred]):
            wide.print(shown)
    wide.print(f"{out}: read to {dict(log.ends)}, {reading.set_aside.records} records set aside")


def _reading(log: Replay, source: str, selection: Selection) -> OutputReading:
    set_aside = log.set_aside.persist()
    first = tuple(row.asDict() for row in set_aside.limit(NAMED_RECORDS).collect())
    return OutputReading(
        source=source,
        ends=log.ends,
        set_aside=SetAside(set_aside.count(), first),
        log=log.folder.rpartition("/")[2]
        if isinstance(log, LakeLog)
        else name_of_log(topic_ids(selection.kafka, log.ends)),
        as_of=selection.moment.isoformat() if selection.moment else None,
        known_by=selection.known_by.isoformat() if selection.known_by else None,
    )


def _mart(text: str) -> str:
    if text not in MARTS:
        raise typer.BadParameter(f"there is no mart {text!r}; there are {', '.join(MARTS)}")
    return text


def _moment(text: str) -> datetime:
    try:
        return moment(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is neither a day nor a time of ISO 8601") from error


def _earlier(text: str) -> OutputReading:
    try:
        folder, _, name = located(text).rstrip("/").rpartition("/")
        return read_earlier(folder, name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def make(
    marts: Annotated[list[str] | None, typer.Argument(parser=_mart, metavar="[mart]...")] = None,
    *,
    out: Annotated[
        str, typer.Option(parser=arguments.writable, metavar="DIR", help="A folder or URI for the tables.")
    ],
    source: Annotated[Literal["log", "lake"], typer.Option("--from")] = "log",
    lake: Annotated[str, typer.Option(help="The lake's folder or URI; default: DAYBOOK_LAKE.")] = "",
    as_of: Annotated[
        datetime | None, typer.Option(parser=_moment, metavar="T", help="A day (its end) or a time, UTC.")
    ] = None,
    knowledge: Annotated[
        Knowledge,
        typer.Option(help="As of T: what had happened by then, or what the lake had recorded by then."),
    ] = "happened",
    known_by: Annotated[
        datetime | None,
        typer.Option(parser=_moment, metavar="T", help="Only what the lake had by then, also with --as-of."),
    ] = None,
    as_read_by: Annotated[
        OutputReading | None,
        typer.Option(parser=_earlier, metavar="DIR", help="Only what this earlier output has seen."),
    ] = None,
) -> None:
    """Build marts from the whole history; without names, all of them."""
    settings = arguments.settings_or_exit()
    folder = located(lake or settings.lake) if source == "lake" else None
    if knowledge == "recorded" and known_by is None:
        known_by, as_of = as_of, None
    if known_by is not None and folder is None:
        raise typer.BadParameter("only the lake can say what was recorded by a moment: add --from lake")
    selection = Selection(settings.kafka, folder, as_read_by, as_of, known_by)
    with arguments.exit_on_failure():
        run(marts or list(MARTS), selection, out, settings)


if __name__ == "__main__":
    arguments.run_job(make, "\n".join(f"{name:17} {mart.question}" for name, mart in MARTS.items()))
