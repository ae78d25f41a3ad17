"""The input of a run of marts: the log or the lake, whole or as of a moment."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.as_of import AsOf, Knowledge
from analytics.envelope import with_columns
from analytics.lake.reader import open_lake
from analytics.marts.catalogue import Sources
from analytics.offsets import Offsets, check_within, stable_ends
from analytics.replay import Replay, read_topics, replay
from analytics.staging import conversations

# Where orders' commands stand: a shop of an earlier version wrote them among those of people.
COMMANDS = ("inventory.inbox", "inventory.commands")
EARLIER = "the earlier output"


@dataclass(frozen=True)
class Selection:
    """`lake` None: from the log. `ends`: only what an earlier output saw. `moment`: only up to then."""

    kafka: str
    lake: Path | None = None
    ends: Offsets | None = None
    moment: datetime | None = None
    knowledge: Knowledge = Knowledge.HAPPENED


def events(session: SparkSession, selection: Selection) -> Replay:
    """Up to `ends`, not yet cut by time. Raises LogUnreachable, AheadOfLog, NoLake and LakeDamaged."""
    if selection.lake is None:
        if selection.ends is not None:
            check_within(stable_ends(selection.kafka, selection.ends), {EARLIER: selection.ends})
        return replay(session, selection.kafka, ends=selection.ends)
    lake = open_lake(session, selection.lake)
    if selection.ends is None:
        return lake
    check_within(lake.ends, {EARLIER: selection.ends})
    return lake.before(selection.ends)


def sources(session: SparkSession, log: Replay, selection: Selection) -> Sources:
    """What the marts are made of. Commands are read where they can be cut like the events: they have no
    business time, are not in the lake, and no output says how far they were read. Raises LogUnreachable."""
    if selection.moment is None:
        whole_log = selection.lake is None and selection.ends is None
        return Sources(log, _outgoing_commands(session, selection.kafka) if whole_log else None)
    cut = AsOf(log, selection.moment, selection.knowledge)
    if selection.lake is not None or selection.ends is not None or selection.knowledge is Knowledge.HAPPENED:
        return Sources(cut)
    return Sources(cut, _outgoing_commands(session, selection.kafka, selection.moment))


def _outgoing_commands(session: SparkSession, kafka: str, until: datetime | None = None) -> DataFrame:
    commands = with_columns(read_topics(session, kafka, stable_ends(kafka, COMMANDS)))
    return conversations.outgoing_commands(
        commands if until is None else commands.where(F.col("recorded_at") <= F.lit(until))
    )
