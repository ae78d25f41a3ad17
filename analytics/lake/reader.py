"""Reads the lake as of one of its commits: the same frames as from the log, decoded when they were copied."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.delta import Location, table
from analytics.envelope import POSITION, before, event_types
from analytics.lake.tables import (
    OTHER,
    RAW,
    Commit,
    NoLake,
    commit_at,
    copy_of,
    fingerprint,
    read_commits,
    read_exceptions,
    table_name,
)
from analytics.log_rule import Exceptions, verdict_on, with_fault
from analytics.money import with_micros
from analytics.offsets import Offsets
from analytics.replay import Replay
from contracts.lock import Lock, load_lock
from services.kernel.log.rule import Journal

JUDGED = ("topic", "partition", "offset", "entity", "version", "epoch")


@dataclass(frozen=True)
class LakeLog(Replay):
    """A replay of a copy of the log: `log` is its table of all records, `folder` the copy's, which has a table for the
    events of each type."""

    folder: str = ""

    def of(self, type_name: str) -> DataFrame:
        """The events of a type: the columns of ENVELOPE, then the fields of its newest schema, money in micros."""
        name, session = table_name(type_name), self.log.sparkSession
        if table(self.folder, name) is None:
            return Replay(self.ends, self.log.where("false"), self.lock).of(type_name)
        rows = read_before(session, self.folder, name, self.ends)
        counting = with_fault(rows.where("readable").drop("readable"), self.exceptions).where("fault IS NULL")
        return with_micros(counting.drop("fault"))


def read_before(session: SparkSession, folder: str, name: str, ends: Offsets) -> DataFrame:
    """The rows of a copy's table before `ends`."""
    return session.read.format("delta").load(f"{folder}/{name}").where(before(ends))


def open_lake(session: SparkSession, folder: Location, recorded_by: datetime | None = None) -> LakeLog:
    """Returns the lake as of its last commit, or of the last one at or before a moment: that never changes. Raises
    NoLake and NotRecorded."""
    commits, lock = read_commits(folder), load_lock()
    commit = commits[-1] if recorded_by is None else commit_at(commits, recorded_by)
    of_log = [other for other in commits if other.log == commit.log]
    if of_log[-1].contracts != fingerprint(lock):
        raise NoLake(
            f"the lake in {folder} was decoded with other contracts: `./daybook analytics lake update`"
            if of_log[-1] is commits[-1]
            else f"{folder} has a log that was replaced, decoded with other contracts: no code of today reads it"
        )
    return log_at(session, folder, commit, lock)


def log_at(session: SparkSession, folder: Location, commit: Commit, lock: Lock) -> LakeLog:
    """The log as of a commit of the lake in `folder`. Raises NoLake where its copy was removed."""
    copy, exceptions = copy_of(folder, commit.log), read_exceptions(folder, commit)
    if table(copy, RAW) is None:
        raise NoLake(f"{copy} was removed, and with it what update {commit.number} had copied")
    return log_before(session, copy, commit.ends, exceptions, lock)


def log_before(
    session: SparkSession, copy: str, ends: Offsets, exceptions: Exceptions, lock: Lock
) -> LakeLog:
    """A copy's records before `ends`, of which `exceptions` do not count."""
    log = with_fault(read_before(session, copy, RAW, ends), exceptions)
    return LakeLog(ends, log, lock, exceptions, folder=copy)


def records_of(raw: DataFrame, type_name: str, lock: Lock) -> DataFrame:
    """The records of a type in `events_raw`. A type that was unknown when it was copied is among the others."""
    of_type = F.col("record").isin(table_name(type_name), OTHER) & F.col("schema_id").isin(
        *lock.ids(type_name)
    )
    return raw.where(of_type & F.col("reason").isNull())


def judged(log: LakeLog, decisions: Journal) -> DataFrame:
    """All records as the rule wants them: JUDGED, kind, verdict and readable."""
    ids = [number for name in event_types(log.lock) for number in log.lock.ids(name)]
    event = F.col("reason").isNull() & F.coalesce(F.col("schema_id").isin(ids), F.lit(False))
    records = log.log.select(
        *JUDGED,
        F.col("reason").alias("kind"),
        F.when(F.col("reason").isNull(), verdict_on(decisions)).alias("verdict"),
        event.alias("readable"),
    )
    if not (unreadable := _unreadable(log)):
        return records
    marks = log.log.sparkSession.createDataFrame(
        unreadable, "topic string, partition int, offset long, broken boolean"
    )
    marked = records.join(F.broadcast(marks), list(POSITION), "left")
    return marked.withColumn("readable", F.col("readable") & F.col("broken").isNull()).drop("broken")


def _unreadable(log: LakeLog) -> list[tuple[str, int, int, bool]]:
    """The positions of the events whose values could not be decoded."""
    tables = [
        delta for name in event_types(log.lock) if (delta := table(log.folder, table_name(name))) is not None
    ]
    return [
        (row["topic"], row["partition"], row["offset"], True)
        for delta in tables
        for row in delta.to_pyarrow_dataset()
        .to_table(list(POSITION), filter=~ds.field("readable"))
        .to_pylist()
    ]
