"""Copies the log into the lake, each batch exactly once, and makes few files of many.

A part is written aside, measured, then named in the manifest; it is removed when no manifest names it.
"""

import fcntl
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.envelope import EVENT_TOPICS, before, with_kind
from analytics.errors import AnalyticsError
from analytics.lake.manifest import (
    MANIFEST,
    NO_SCHEMA,
    REBUILDING,
    LakeDamaged,
    Manifest,
    NoLake,
    Part,
    fingerprint,
    part_folder,
    read_manifest,
    size,
    write_manifest,
)
from analytics.lake.reader import records
from analytics.log_rule import read_decisions
from analytics.offsets import Offsets, check_within, stable_ends, topic_ids
from analytics.replay import SOURCE
from contracts.lock import load_lock
from services.kernel.log.clients import Connection

EVENTS_PER_BATCH = 1_000_000
Report = Callable[[str], None]


class LakeLogReplaced(AnalyticsError):
    """The lake is a copy of topics that no longer exist."""


def update(
    session: SparkSession,
    kafka: str,
    folder: Path,
    report: Report,
    topics: Sequence[str] = EVENT_TOPICS,
    events_per_batch: int = EVENTS_PER_BATCH,
) -> Manifest:
    """Copies the committed records that the lake does not have, and the decisions on them. Raises LogUnreachable,
    LakeBusy, LakeLogReplaced and AheadOfLog."""
    with only_writer(folder):
        ids, ends = topic_ids(kafka, topics), stable_ends(kafka, topics)
        try:
            lake = read_manifest(folder)
        except NoLake:
            lake = _empty(ids)
        if lake.log != ids:
            raise LakeLogReplaced(f"{folder} is a copy of another log: `./daybook analytics lake rebuild`")
        check_within(ends, {"the lake": lake.ends})
        return _copy(session, kafka, folder / MANIFEST, lake, ends, report, events_per_batch)


def rebuild(
    session: SparkSession,
    kafka: str,
    folder: Path,
    report: Report,
    topics: Sequence[str] = EVENT_TOPICS,
    events_per_batch: int = EVENTS_PER_BATCH,
) -> Manifest:
    """Copies the log from its beginning; readers see the former lake until all is copied. Raises LogUnreachable and
    LakeBusy."""
    with only_writer(folder):
        ids, ends = topic_ids(kafka, topics), stable_ends(kafka, topics)
        beside = folder / REBUILDING
        lake = _copy(session, kafka, beside, _empty(ids), ends, report, events_per_batch)
        try:
            before = read_manifest(folder)
            copied = tuple(part.name for part in before.parts)
            lake = replace(lake, generation=before.generation + 1, retired=copied)
        except NoLake:
            report("there was no lake before")
        write_manifest(lake, folder / MANIFEST)
        beside.unlink()
        return lake


def _empty(ids: dict[str, str]) -> Manifest:
    ends: Offsets = {topic: {} for topic in ids}
    return Manifest(0, f"checkpoint-{uuid4().hex[:12]}", ids, ends, fingerprint(load_lock()))


def _copy(
    session: SparkSession,
    kafka: str,
    file: Path,
    lake: Manifest,
    ends: Offsets,
    report: Report,
    events_per_batch: int,
) -> Manifest:
    """Copies from the manifest's ends to `ends` or a little further; replaces `file` after each batch."""
    folder = file.parent

    def add(batch: DataFrame, _number: int) -> None:
        # Only the manifest shows what is in the lake. Spark repeats a batch of which it did not see the end, and
        # starts at the first batch without its checkpoint: then nothing, or only a part, of the batch is new.
        nonlocal lake
        part, reached = write_part(batch.where(~before(lake.ends)), folder)
        if not part.rows:
            return
        lake = _extended(lake, reached, part)
        write_manifest(lake, file)
        report(f"copied {sum(part.rows for part in lake.parts):,} events")

    query = (
        with_kind(_stream(session, kafka, lake.ends, ends, events_per_batch))
        .writeStream.foreachBatch(add)
        .option("checkpointLocation", str(folder / lake.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    # After the last events there may be markers and aborted records: they are read, but not copied.
    lake = replace(_extended(lake, ends), decisions=read_decisions(kafka))
    write_manifest(lake, file)
    return lake


def _extended(lake: Manifest, reached: Offsets, *parts: Part) -> Manifest:
    return replace(
        lake,
        generation=lake.generation + 1,
        ends=_furthest(lake.ends, reached),
        contracts=fingerprint(load_lock()),
        parts=(*lake.parts, *parts),
    )


def _stream(session: SparkSession, kafka: str, copied: Offsets, ends: Offsets, events: int) -> DataFrame:
    """Returns the log from the `copied` offsets on, `events` at a time; a new partition from its beginning."""
    starts = {
        topic: {str(number): copied.get(topic, {}).get(number, -2) for number in partitions}
        for topic, partitions in ends.items()
    }
    return (
        session.readStream.format("kafka")
        .options(**SOURCE)
        .options(**Connection(kafka).spark())
        .option("subscribe", ",".join(ends))
        .option("startingOffsets", msgspec.json.encode(starts).decode())
        .option("maxOffsetsPerTrigger", events)
        .load()
    )


def _furthest(copied: Offsets, reached: Offsets) -> Offsets:
    return {
        topic: {
            number: max(copied.get(topic, {}).get(number, 0), reached.get(topic, {}).get(number, 0))
            for number in {*copied.get(topic, {}), *reached.get(topic, {})}
        }
        for topic in {**copied, **reached}
    }


SMALL_BYTES = 128 * 1024 * 1024


def compact(session: SparkSession, folder: Path, small_bytes: int = SMALL_BYTES) -> Manifest:
    """Merges the parts that are smaller than `small_bytes` into one, with one file for each topic and day. The former
    parts stay until the next compaction, for readers that still use them. Raises NoLake, LakeBusy and LakeDamaged."""
    with only_writer(folder):
        lake = read_manifest(folder)
        small = [part for part in lake.parts if part.bytes < small_bytes]
        if len(small) < 2:
            return lake
        merged = records(session, folder, small).repartition(*BY).sortWithinPartitions("partition", "offset")
        part, _ = write_part(merged, folder)
        if part.rows != sum(small_part.rows for small_part in small):
            raise LakeDamaged(
                f"{folder}: {part.rows} records of {sum(small_part.rows for small_part in small)} were found"
            )
        lake = replace(
            lake,
            generation=lake.generation + 1,
            parts=(*(kept for kept in lake.parts if kept not in small), part),
            retired=tuple(small_part.name for small_part in small),
        )
        write_manifest(lake, folder / MANIFEST)
        return lake


ROWS_PER_FILE = 2_000_000
BY = ("topic", "day")
FOLDERS = ds.partitioning(pa.schema([(name, pa.string()) for name in BY]), flavor="hive")


class LakeBusy(AnalyticsError):
    """Another process is writing the lake."""


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Acquires the lake's lock; the system releases it when this process ends. Raises LakeBusy. It first removes what
    an earlier writer left incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeBusy(f"another process is writing the lake in {folder}") from None
        _sweep(folder)
        yield


def write_part(records: DataFrame, folder: Path) -> tuple[Part, Offsets]:
    """Writes `records` as a new part that no manifest names yet; also returns the offsets after its last records.
    Without records, the part has no rows and no folder."""
    name = uuid.uuid4().hex[:12]
    aside = folder / "aside" / name
    dated = records.withColumn("day", F.to_date("recorded_at"))
    writing = dated.write.option("maxRecordsPerFile", ROWS_PER_FILE).option("compression", "zstd")
    writing.partitionBy(*BY).parquet(str(aside))
    schemas, ends = _measured(aside)
    part = Part(name, size(aside), schemas)
    if not part.rows:
        shutil.rmtree(aside)
        return part, ends
    path = part_folder(folder, name)
    path.parent.mkdir(exist_ok=True)
    aside.rename(path)
    return part, ends


def _measured(part: Path) -> tuple[dict[str, int], Offsets]:
    """Returns the records by schema id and the offsets after the last ones, from the files."""
    schemas: dict[str, int] = {}
    ends: dict[str, dict[int, int]] = {}
    if not list(part.rglob("*.parquet")):
        return schemas, ends
    files = ds.dataset(part, format="parquet", partitioning=FOLDERS)
    table = files.to_table(columns=["topic", "partition", "offset", "schema_id"])
    for row in table.group_by("schema_id").aggregate([([], "count_all")]).to_pylist():
        key = NO_SCHEMA if row["schema_id"] is None else str(row["schema_id"])
        schemas[key] = row["count_all"]
    for row in table.group_by(["topic", "partition"]).aggregate([("offset", "max")]).to_pylist():
        ends.setdefault(row["topic"], {})[row["partition"]] = row["offset_max"] + 1
    return schemas, ends


def _sweep(folder: Path) -> None:
    try:
        manifest: Manifest | None = read_manifest(folder)
    except NoLake:
        manifest = None
    named = {part.name for part in manifest.parts} | set(manifest.retired) if manifest else set()
    kept = {part_folder(folder, name).name for name in named}
    unnamed = [part for part in folder.glob("parts/*") if part.name not in kept]
    checkpoints = [
        path for path in folder.glob("checkpoint-*") if not manifest or path.name != manifest.checkpoint
    ]
    for path in (*unnamed, *checkpoints, folder / "aside"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / REBUILDING).unlink(missing_ok=True)
