"""Reads the lake as of one of its commits: the same frames as from the log, decoded when they were copied."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.envelope import ENVELOPE, LOG_COLUMNS, POSITION, before, event_types
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
    table,
    table_name,
)
from analytics.log_rule import NO_FAULT, Exceptions, RecordedDecisions, verdict_on, with_fault
from analytics.money import with_micros
from analytics.offsets import Offsets
from analytics.replay import Replay
from contracts.lock import Lock, load_lock

JUDGED = ("topic", "partition", "offset", "entity", "version", "epoch")


@dataclass(frozen=True)
class LakeLog:
    """A copy's records before `ends`, without those that do not count. `folder` is the copy's."""

    session: SparkSession
    folder: Path
    ends: Offsets
    exceptions: Exceptions
    lock: Lock

    @property
    def events(self) -> DataFrame:
        """Every event that counts: the columns of ENVELOPE."""
        return self._counting(self._enveloped(ENVELOPE)).select(*ENVELOPE)

    def of(self, type_name: str) -> DataFrame:
        """The events of a type: the columns of ENVELOPE, then the fields of its newest schema, money in micros."""
        rows = self.read(table_name(type_name))
        if rows is None:
            empty = self.session.createDataFrame([], f"{LOG_COLUMNS}, fault string")
            return Replay({}, empty, self.lock).of(type_name)
        return with_micros(self._counting(rows.where("readable").drop("readable")).drop("fault"))

    @property
    def set_aside(self) -> DataFrame:
        """The records that do not count, as `Replay.set_aside`."""
        columns = (*POSITION, "entity", "schema_id")
        rows = self._enveloped(columns)
        if (raw := self.read(RAW)) is not None:
            rows = rows.unionByName(foreign(raw, self.lock).select(*columns))
        aside = with_fault(rows, self.exceptions).where(~F.col("fault").isin(*NO_FAULT))
        return aside.select(*columns, F.col("fault").alias("reason"))

    def before(self, offsets: Offsets) -> "LakeLog":
        """Returns only what lies before these offsets; an unnamed partition is left out."""
        return replace(self, ends=offsets)

    def read(self, name: str) -> DataFrame | None:
        """The rows of a table before `ends`; None if nothing was ever written to it."""
        if table(self.folder, name) is None:
            return None
        rows = self.session.read.format("delta").load(str(self.folder / name))
        return rows.where(before(self.ends))

    def _counting(self, rows: DataFrame) -> DataFrame:
        return with_fault(rows, self.exceptions).where("fault IS NULL")

    def _enveloped(self, columns: Sequence[str]) -> DataFrame:
        """The envelopes of all types, readable or not."""
        names = (table_name(name) for name in event_types(self.lock))
        frames = [rows.select(*columns) for name in names if (rows := self.read(name)) is not None]
        empty = self.session.createDataFrame([], LOG_COLUMNS).select(*columns)
        return reduce(DataFrame.unionByName, frames, empty)


def open_lake(session: SparkSession, folder: Path, recorded_by: datetime | None = None) -> LakeLog:
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


def log_at(session: SparkSession, folder: Path, commit: Commit, lock: Lock) -> LakeLog:
    """The log as of a commit of the lake in `folder`. Raises NoLake where its copy was removed."""
    copy, exceptions = copy_of(folder, commit.log), read_exceptions(folder, commit)
    if commit.batch and table(copy, RAW) is None:
        raise NoLake(f"{copy} was removed, and with it what update {commit.number} had copied")
    return LakeLog(session, copy, commit.ends, exceptions, lock)


def records_of(raw: DataFrame, type_name: str, lock: Lock) -> DataFrame:
    """The records of a type in `events_raw`. A type that was unknown when it was copied is among the others."""
    of_type = F.col("record").isin(table_name(type_name), OTHER) & F.col("schema_id").isin(
        *lock.ids(type_name)
    )
    return raw.where(of_type & F.col("reason").isNull())


def foreign(raw: DataFrame, lock: Lock) -> DataFrame:
    """The records in `events_raw` that are of no known type."""
    ids = [number for name in event_types(lock) for number in lock.ids(name)]
    of_type = F.col("reason").isNull() & F.coalesce(F.col("schema_id").isin(ids), F.lit(False))
    return raw.where((F.col("record") == OTHER) & ~of_type)


def judged(log: LakeLog, decisions: RecordedDecisions) -> DataFrame:
    """All records as the rule wants them: JUDGED, kind, verdict and readable."""
    raw = log.read(RAW)
    if raw is None:
        empty = log.session.createDataFrame([], LOG_COLUMNS)
        return empty.select(*JUDGED, *(F.lit(None).cast(kind).alias(name) for name, kind in OWN.items()))
    nothing = F.lit(None).cast("string")
    frames = [
        foreign(raw, log.lock).select(*JUDGED, F.col("reason").alias("kind"), F.lit(False).alias("readable"))
    ]
    for name in event_types(log.lock):
        if (rows := log.read(table_name(name))) is not None:
            frames.append(rows.select(*JUDGED, nothing.alias("kind"), "readable"))
    every = reduce(DataFrame.unionByName, frames)
    verdict = verdict_on(decisions)
    if not decisions.verdicts:
        return every.withColumn("verdict", nothing)
    decided = raw.withColumn("verdict", F.when(F.col("reason").isNull(), verdict)).where(
        "verdict IS NOT NULL"
    )
    return every.join(F.broadcast(decided.select(*POSITION, "verdict")), list(POSITION), "left")


OWN = {"kind": "string", "verdict": "string", "readable": "boolean"}
