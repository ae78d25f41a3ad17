"""Copies the log into the lake: a stream with an end, each batch exactly once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession

from analytics.envelope import EVENT_TOPICS, before, with_kind
from analytics.errors import AnalyticsError
from analytics.journal import read_decisions
from analytics.lake.manifest import (
    MANIFEST,
    REBUILDING,
    Manifest,
    NoLake,
    Part,
    fingerprint,
    read_manifest,
    write_manifest,
)
from analytics.lake.parts import only_writer, write_part
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
    """Copy what is committed now and not yet in the lake, and the decisions on it. Raises LogUnreachable, LakeBusy,
    LogReplaced and AheadOfLog."""
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
    """Copy the log from its beginning; readers see the lake as it was until all is there. Raises LogUnreachable and
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
    """Copy from the manifest's ends to `ends` or a little further; `file` is replaced after each batch."""
    folder = file.parent

    def add(batch: DataFrame, _number: int) -> None:
        # The manifest alone says what is in the lake. Spark repeats a batch that it did not see end, and
        # begins anew without its checkpoint: then there is nothing, or only a rest, of the batch to add.
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
    # Behind the last events there may be markers and aborted ones: nothing to copy, and read all the same.
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
    """The log from the `copied` offsets on, by that many events; a new partition from its beginning."""
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
