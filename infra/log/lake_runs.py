"""Read models filled from the lake: the Parquet files as batches of decoded events.

The lake has an event's envelope as columns, except the name of its writer. `order_history` shows that name, so it can
only be filled from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from analytics.lake.manifest import Manifest, check_part, part_folder, read_manifest
from analytics.lake.writer import LakeLogReplaced
from analytics.log_rule import read_decisions
from analytics.offsets import topic_ids
from infra.base.errors import DaybookError
from services.kernel.log.rule import FIRST_EPOCH, Event, home_of, stream_of
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import Envelope, Metadata
from services.projection.engine.read_model import Arrival, Batch, Contents, ReadModel, Record, TopicPartition
from services.projection.engine.rebuild import Lake
from services.projection.read_models import ORDER_HISTORY

OFFSETS_AT_A_TIME = 10_000
NEEDS_THE_LOG = frozenset({ORDER_HISTORY.name})
ENVELOPE = ("id", "type", "entity", "recorded_at", "correlation_id", "causation_id", "epoch", "version")
COLUMNS = ("offset", "kind", *ENVELOPE, "value")
# The lake leaves it out; no read model of those that it may fill looks at it.
UNKNOWN_SOURCE = ""


class NotInTheLake(DaybookError):
    """A read model needs what the lake does not hold."""


def lake_for(kafka: str, folder: Path, models: Sequence[ReadModel[Any]]) -> Lake:
    """The lake in `folder`, checked: of this log, undamaged, enough for `models`.

    Raises NotInTheLake, NoLake, LakeDamaged, LogReplaced and LogUnreachable.
    """
    for model in models:
        if model.name in NEEDS_THE_LOG:
            raise NotInTheLake(
                f"{model.name} shows who wrote an event, which is in the log alone: --from log"
            )
    lake = read_manifest(folder)
    if dict(lake.log) != topic_ids(kafka, lake.log):
        raise LakeLogReplaced(f"{folder} is a copy of another log: `./daybook analytics lake rebuild`")
    for part in lake.parts:
        check_part(folder, part)
    ends = {(topic, number): end for topic, parts in lake.ends.items() for number, end in parts.items()}
    files = {topic: _files(folder, lake, topic) for model in models for topic in model.topics}
    partitions = {topic: len(numbers) for topic, numbers in lake.ends.items()}
    decided = frozenset(stream for stream, *_ in read_decisions(kafka).verdicts)

    @contextmanager
    def opened(starts: Mapping[TopicPartition, int]) -> Iterator[LakeRuns]:
        yield LakeRuns(files, starts, partitions, decided)

    return Lake(opened, ends)


def _files(folder: Path, lake: Manifest, topic: str) -> ds.Dataset | None:
    """A topic's files; None where it has no events."""
    tps = [part_folder(folder, part.name) / f"topic={topic}" for part in lake.parts]
    files = [str(file) for tp in tps for file in sorted(tp.rglob("*.parquet"))]
    return ds.dataset(files, format="parquet") if files else None


@dataclass
class LakeRuns:
    """Reads the topics' files by ranges of offsets; the order of rows within and among files does not matter.

    A partition ends before the first record that is no event of epoch 1, or of a stream (`decided`) on which
    an operator decided: what follows is read from the log, which has the headers and the openings of epochs.
    """

    files: Mapping[str, ds.Dataset | None]
    starts: Mapping[TopicPartition, int]
    partitions: Mapping[str, int]
    decided: frozenset[str]
    _next: dict[TopicPartition, int] = field(init=False)
    _read_to: dict[TopicPartition, int] = field(init=False)
    _ended: set[TopicPartition] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._next, self._read_to = dict(self.starts), dict(self.starts)

    def fetch(self, ends: Mapping[TopicPartition, int], seek: int) -> list[Batch]:
        """The next run of each partition, none at or beyond its end; empty when all ends are reached."""
        while going := [p for p, end in ends.items() if self._read_to[p] < end and p not in self._ended]:
            batches = [batch for tp in going if (batch := self._run(tp, ends[tp], seek))]
            if batches:
                return batches
        return []

    def _run(self, tp: TopicPartition, end: int, seek: int) -> Batch | None:
        topic, number = tp
        first = self._read_to[tp]
        last = self._read_to[tp] = min(end, first + OFFSETS_AT_A_TIME)
        dataset = self.files.get(topic)
        if dataset is None:
            return None
        at = ds.field("offset")
        rows = (ds.field("partition") == number) & (at >= first) & (at < last)
        table = dataset.to_table(columns=list(COLUMNS), filter=rows).sort_by("offset")
        arrivals = list(self._arrivals(tp, table))
        if len(arrivals) < table.num_rows:
            self._ended.add(tp)
        if not arrivals:
            return None
        start, records = self._next[tp], [arrival.record for arrival in arrivals]
        self._next[tp] = records[-1].offset + 1
        # What stands behind the last event, an opening too, is read from the log.
        given = Contents(arrivals, (), arrivals[-1].kind.metadata.epoch)
        return Batch(tp, seek, start, records, given)

    def _arrivals(self, tp: TopicPartition, table: pa.Table) -> Iterable[Arrival]:
        """Up to the first record that is no event."""
        times = table.column("recorded_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        columns = (times if name == "recorded_at" else table.column(name) for name in COLUMNS)
        for offset, by_itself, *meta, value in zip(*(column.to_pylist() for column in columns), strict=True):
            if by_itself is not None or None in meta:
                return
            own_id, kind, entity, recorded_at, correlation_id, causation_id, epoch, version = meta
            elsewhere = home_of(entity, self.partitions[tp[0]]) != tp[1]
            if elsewhere or epoch != FIRST_EPOCH or stream_of(tp[0], entity) in self.decided:
                return
            try:
                body = decode(value)
            except Undecodable:
                return
            metadata = Metadata(
                own_id,
                kind,
                entity,
                UNKNOWN_SOURCE,
                recorded_at,
                correlation_id,
                causation_id,
                epoch,
                version,
            )
            record = Record(*tp, offset, entity.encode(), value, ())
            yield Arrival(record, entity, Event(metadata), Envelope(metadata, body), "")
