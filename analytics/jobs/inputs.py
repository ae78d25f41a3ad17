"""What a run of marts reads: the log or the lake, all of it or as of some moment."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.as_of import AsOf, Knowledge
from analytics.envelope import with_columns
from analytics.lake.reader import open_lake
from analytics.marts.catalogue import Sources
from analytics.offsets import Offsets, check_within, end_offsets
from analytics.replay import Replay, read_topics, replay
from analytics.staging import conversations

# Where orders' commands stand: a shop of an earlier version wrote them among those of people.
COMMANDS = ("inventory.inbox", "inventory.commands")
EARLIER = "the earlier output"


@dataclass(frozen=True)
class Wanted:
    """`lake` None: from the log. `ends`: only what an earlier output saw. `moment`: only up to then."""

    kafka: str
    lake: Path | None = None
    ends: Offsets | None = None
    moment: datetime | None = None
    knowledge: Knowledge = Knowledge.HAPPENED


def events(session: SparkSession, wanted: Wanted) -> Replay:
    """Up to `ends`, not yet cut by time. Raises LogUnreachable, AheadOfLog, NoLake and LakeDamaged."""
    if wanted.lake is None:
        if wanted.ends is not None:
            check_within(end_offsets(wanted.kafka, wanted.ends), {EARLIER: wanted.ends})
        return replay(session, wanted.kafka, ends=wanted.ends)
    lake = open_lake(session, wanted.lake)
    if wanted.ends is None:
        return lake
    check_within(lake.ends, {EARLIER: wanted.ends})
    return lake.before(wanted.ends)


def sources(session: SparkSession, log: Replay, wanted: Wanted) -> Sources:
    """What the marts are made of. Commands are read where they can be cut like the events: they have no
    business time, are not in the lake, and no output says how far they were read. Raises LogUnreachable."""
    if wanted.moment is None:
        asked = wanted.lake is None and wanted.ends is None
        return Sources(log, _asks(session, wanted.kafka) if asked else None)
    cut = AsOf(log, wanted.moment, wanted.knowledge)
    if wanted.lake is not None or wanted.ends is not None or wanted.knowledge is Knowledge.HAPPENED:
        return Sources(cut)
    return Sources(cut, _asks(session, wanted.kafka, wanted.moment))


def _asks(session: SparkSession, kafka: str, until: datetime | None = None) -> DataFrame:
    commands = with_columns(read_topics(session, kafka, end_offsets(kafka, COMMANDS)))
    return conversations.asks(
        commands if until is None else commands.where(F.col("recorded_at") <= F.lit(until))
    )
