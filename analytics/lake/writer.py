"""Copies the log into the lake's tables, each record exactly once.

Each batch has a number. It is appended to `events_raw` with its end offsets, then decoded from there into the tables
of its event types. Delta stores the number with each table in the same commit as the rows, so a killed update is
continued where it ended, and two writers at once cannot both append a batch."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.delta import METADATA, Location, table
from analytics.envelope import ENVELOPE, EVENT_TOPICS, event_types, once, with_kind
from analytics.errors import AnalyticsError
from analytics.lake.reader import LakeLog, judged, log_at, log_before, records_of
from analytics.lake.tables import (
    APP,
    COMMITS,
    EXCEPTIONS,
    LOST,
    OTHER,
    RAW,
    Commit,
    NoLake,
    batch_ends,
    copy_of,
    fingerprint,
    last_batch,
    name_of_log,
    read_commits,
    read_exceptions,
    table_name,
)
from analytics.log_rule import (
    NOTHING_FOUND,
    Exceptions,
    decodable,
    decoded,
    exceptions_among,
    is_event,
    read_decisions,
)
from analytics.money import with_decimals
from analytics.offsets import Offsets, check_within, stable_ends, topic_ids
from analytics.replay import json_text, read_topics, upcasted_to
from contracts.lock import Lock, load_lock

EVENTS_PER_BATCH = 4_000_000  # a batch costs 25 s, however small it is
IDENTITY = ("topic", "entity", "version", "id")
_NEVER = datetime.fromtimestamp(0, UTC)
Report = Callable[[str], None]


class LakeBusy(AnalyticsError):
    """Another process is writing the lake."""


class LakeLogReplaced(AnalyticsError):
    """The lake is a copy of other topics."""


def update(
    session: SparkSession,
    kafka: str,
    folder: Location,
    report: Report,
    topics: Sequence[str] = EVENT_TOPICS,
    events_per_batch: int = EVENTS_PER_BATCH,
    *,
    replaced: bool = False,
) -> Commit:
    """Copies the committed records that the lake does not have, and commits. With `replaced` also from a log that the
    lake has not copied before. Raises LogUnreachable, LakeBusy, LakeLogReplaced, NoLake and AheadOfLog."""
    ids, ends = topic_ids(kafka, topics), stable_ends(kafka, topics)
    commits = read_commits(folder) if table(folder, COMMITS) is not None else []
    of_log = [commit for commit in commits if commit.log == ids]
    if commits and not of_log and not replaced:
        raise LakeLogReplaced(
            f"{folder} is a copy of another log. If this site was rebuilt, or took over: "
            "`./daybook analytics lake update --log-replaced`"
        )
    last = (
        of_log or [Commit(0, _NEVER, {topic: {} for topic in ids}, ids, 0, "", fingerprint(load_lock()))]
    )[-1]
    if commits:  # of whichever log: numbers and times go on
        last = replace(last, number=commits[-1].number, time=commits[-1].time)
    earlier = {copy_of(folder, commit.log): commit for commit in commits if commit.log != ids}
    check_within(ends, {"the lake": last.ends})
    try:
        return _Writer(session, kafka, folder, ids, list(earlier.values())).update(
            last, ends, report, events_per_batch
        )
    except (Py4JJavaError, PySparkException) as error:
        if "io.delta.exceptions" in str(error):
            raise LakeBusy(f"another process is writing the lake in {folder}") from error
        raise


class _Writer:
    """One update of one lake. `earlier`: the last commit of each other log that it has copied."""

    def __init__(
        self,
        session: SparkSession,
        kafka: str,
        folder: Location,
        ids: dict[str, str],
        earlier: Sequence[Commit],
    ) -> None:
        self._session, self._kafka, self._folder, self._ids = session, kafka, folder, ids
        self._copy, self._earlier = copy_of(folder, ids), earlier
        self._lock = load_lock()

    def update(self, last: Commit, ends: Offsets, report: Report, events_per_batch: int) -> Commit:
        done, copied = last_batch(self._copy, RAW), last.ends
        if done < last.batch:
            raise NoLake(
                f"{self._copy} was removed, but is still in use: remove the whole lake, and copy the log again"
            )
        if done > last.batch:  # the update before this one was killed
            self._decode(done)
            copied = batch_ends(self._copy, done)
        if last.contracts != fingerprint(self._lock):
            report("decoding again: the contracts have changed")
            self._decode_again()
        while (upto := _next_ends(copied, ends, events_per_batch)) != copied:
            self._append(copied, upto, done + 1)
            done += 1
            # Those of another writer, if it was faster: then this one has appended nothing.
            copied = batch_ends(self._copy, done)
            self._decode(done)
            report(f"copied batch {done}")
        report("finding the records that do not count")
        return self._commit(last, copied, done)

    def _append(self, starts: Offsets, ends: Offsets, batch: int) -> None:
        """Appends what lies between two offsets to `events_raw`."""
        source = read_topics(self._session, self._kafka, ends, starts)
        types = {number: name for name in event_types(self._lock) for number in self._lock.ids(name)}
        names = [F.lit(part) for number, name in types.items() for part in (number, table_name(name))]
        named = F.try_element_at(F.create_map(*names), F.col("schema_id").cast("int"))
        rows = with_kind(source, ("key", "headers", "source")).withColumnsRenamed({"kind": "reason"})
        own = F.coalesce(F.when(F.col("reason").isNull(), named), F.lit(OTHER))
        rows = rows.withColumns({"batch": F.lit(batch).cast("long"), "record": own})
        self._write(rows, RAW, batch, {"batch": batch, "ends": ends, "log": self._ids})

    def _decode(self, batch: int) -> None:
        """Appends a batch of `events_raw` to the tables of its types, unless they have it."""
        raw = self._read(RAW).where(F.col("batch") == batch)
        ids = {
            row["schema_id"] for row in raw.where("reason IS NULL").select("schema_id").distinct().collect()
        }
        for name in event_types(self._lock):
            if ids.intersection(self._lock.ids(name)) and last_batch(self._copy, table_name(name)) < batch:
                rows = decoded_events(records_of(raw, name, self._lock), name, self._lock, ids)
                self._write(rows, table_name(name), batch)

    def _decode_again(self) -> None:
        """Replaces the tables of all types: their schemas, or what can be read at all, may be others than before."""
        for name in event_types(self._lock):
            rows = records_of(self._read(RAW), name, self._lock)
            frame = decoded_events(rows, name, self._lock, self._lock.ids(name))
            frame.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(
                f"{self._copy}/{table_name(name)}"
            )

    def _commit(self, last: Commit, ends: Offsets, batch: int) -> Commit:
        """Appends the row of `commits` that makes the update visible, and its exceptions where they have changed."""
        log = log_before(self._session, self._copy, ends, NOTHING_FOUND, self._lock)
        decisions = read_decisions(self._kafka)
        partitions = {topic: len(numbers) for topic, numbers in ends.items()}
        exceptions = exceptions_among(judged(log, decisions), partitions, decisions)
        exceptions_id = last.exceptions_id
        if exceptions != read_exceptions(self._folder, last):
            exceptions_id = uuid4().hex
            self._write_exceptions(exceptions, exceptions_id)
        now = max(datetime.now(UTC), last.time + timedelta(microseconds=1))
        contracts = fingerprint(self._lock)
        commit = Commit(last.number + 1, now, ends, self._ids, batch, exceptions_id, contracts)
        row = [(commit.number, now, json_text(ends), json_text(self._ids), batch, exceptions_id, contracts)]
        columns = """number long, time timestamp, ends string, log string, batch long, exceptions_id string,
            contracts string"""
        self._write_lost(log)
        self._write(self._session.createDataFrame(row, columns), COMMITS, commit.number, folder=self._folder)
        return commit

    def _write_lost(self, log: LakeLog) -> None:
        """Replaces `events_lost`: what counted in the copy of a log that was replaced, and is not in `log`. Rows of a
        copy that was removed since are kept."""
        if not self._earlier:
            return
        there, removed = list[DataFrame](), list[str]()
        for commit in self._earlier:
            name = name_of_log(commit.log)
            try:
                rows = log_at(self._session, self._folder, commit, self._lock).events
                there.append(rows.withColumn("log", F.lit(name)))
            except NoLake:
                removed.append(name)
        if table(self._folder, LOST) is not None:
            there.append(self._read(LOST, self._folder).where(F.col("log").isin(removed)))
        if there:
            every = reduce(DataFrame.unionByName, there).dropDuplicates(list(IDENTITY))
            lost = every.join(log.log.where("reason IS NULL"), list(IDENTITY), "left_anti")
            lost.write.format("delta").mode("overwrite").save(f"{self._folder}/{LOST}")

    def _write_exceptions(self, exceptions: Exceptions, own_id: str) -> None:
        rows = self._session.createDataFrame(exceptions).coalesce(1)
        rows = rows.withColumns({"id": F.lit(own_id), "stops": F.col("entity").isNotNull()})
        rows.write.format("delta").mode("append").save(f"{self._copy}/{EXCEPTIONS}")

    def _read(self, name: str, folder: Location | None = None) -> DataFrame:
        return self._session.read.format("delta").load(f"{folder or self._copy}/{name}")

    def _write(
        self, rows: DataFrame, name: str, batch: int, content: object = None, folder: Location | None = None
    ) -> None:
        writing = rows.write.format("delta").mode("append").option("mergeSchema", True)
        writing = writing.option("txnAppId", APP).option("txnVersion", batch)
        if content is not None:
            writing = writing.option(METADATA, json_text(content))
        if name == RAW:
            writing = writing.partitionBy("record")
        writing.save(f"{folder or self._copy}/{name}")


def decoded_events(rows: DataFrame, type_name: str, lock: Lock, ids: Collection[int]) -> DataFrame:
    """ENVELOPE, `readable`, and the fields of the newest schema, null where a value is not readable. `ids`: the schemas
    that there are, and perhaps others; to read older ones takes Python."""
    *older, newest = lock.ids(type_name)
    whole = rows.where(F.col("schema_id") == newest).select(*ENVELOPE, once(decodable()))
    opened = whole.select(*ENVELOPE, "end", once(F.struct(decoded(newest, lock).alias("made"))))
    readable = F.coalesce(is_event(F.col("made"), newest, lock), F.lit(False))
    judged_ = opened.select(*ENVELOPE, readable.alias("readable"), F.col("made.event").alias("event"))
    event = F.when(F.col("readable"), F.col("event"))
    current = judged_.select(*ENVELOPE, "readable", event.alias("event")).select(
        *ENVELOPE, "readable", "event.*"
    )
    if older := [number for number in older if number in ids]:
        shape = current.drop("readable")
        upcasted = upcasted_to(shape, rows.where(F.col("schema_id").isin(older)))
        upcasted = upcasted.select(
            *ENVELOPE, (~F.col("undecodable")).alias("readable"), *shape.columns[len(ENVELOPE) :]
        )
        current = current.unionByName(upcasted)
    return with_decimals(current)


def _next_ends(copied: Offsets, ends: Offsets, events: int) -> Offsets:
    """The ends of the next batch: so many offsets further, spread over the partitions; `copied` if nothing is left."""
    step = max(events // max(sum(map(len, ends.values())), 1), 1)
    return {
        topic: {
            number: max(since, min(since + step, end))
            for number, end in parts.items()
            for since in [copied.get(topic, {}).get(number, 0)]
        }
        for topic, parts in ends.items()
    }
