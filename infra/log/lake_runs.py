"""Read models filled from the lake: `events_raw` as batches of decoded events."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.dataset as ds

from analytics.delta import Location, table
from analytics.lake.tables import RAW, NoLake, copy_of, read_commits
from analytics.lake.writer import LakeLogReplaced
from analytics.log_rule import read_decisions
from analytics.offsets import topic_ids
from services.kernel.log.rule import FIRST_EPOCH, Event, stream_of
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import Envelope, Metadata, partition_of
from services.projection.engine.read_model import Arrival, Batch, Contents, Record, TopicPartition
from services.projection.engine.rebuild import Lake

OFFSETS_AT_A_TIME = 10_000
# The first fields of Metadata, in its order.
ENVELOPE = (
    "id",
    "type",
    "entity",
    "source",
    "recorded_at",
    "correlation_id",
    "causation_id",
    "epoch",
    "version",
)
COLUMNS = ("offset", "reason", *ENVELOPE, "value")


def lake_for(kafka: str, folder: Location) -> Lake:
    """The lake in `folder`, if it is of this log. Raises NoLake, LakeLogReplaced and LogUnreachable."""
    lake = read_commits(folder)[-1]
    if dict(lake.log) != topic_ids(kafka, lake.log):
        raise LakeLogReplaced(f"{folder} is a copy of another log: --from log")
    ends = {(topic, number): end for topic, parts in lake.ends.items() for number, end in parts.items()}
    raw = table(copy_of(folder, lake.log), RAW)
    if raw is None:
        raise NoLake(f"{copy_of(folder, lake.log)} was removed: --from log")
    rows = raw.to_pyarrow_dataset()
    partitions = {topic: len(numbers) for topic, numbers in lake.ends.items()}
    decided = frozenset(stream for stream, *_ in read_decisions(kafka).verdicts)

    @contextmanager
    def opened(starts: Mapping[TopicPartition, int]) -> Iterator[LakeRuns]:
        yield LakeRuns(rows, starts, partitions, decided)

    return Lake(opened, ends)


class LakeRuns:
    """Reads `events_raw` by ranges of offsets; the order of rows within and among files does not matter.

    A partition ends before the first record that is no event of epoch 1, or of a stream (`decided`) on which
    an operator decided: what follows is read from the log, which has the headers and the openings of epochs.
    """

    def __init__(
        self,
        rows: ds.Dataset,
        starts: Mapping[TopicPartition, int],
        partitions: Mapping[str, int],
        decided: frozenset[str],
    ) -> None:
        self._rows, self._partitions, self._decided = rows, partitions, decided
        self._next, self._read_to = dict(starts), dict(starts)
        self._ended = set[TopicPartition]()

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
        at = ds.field("offset")
        here = (ds.field("topic") == topic) & (ds.field("partition") == number) & (at >= first) & (at < last)
        records_ = self._rows.to_table(columns=list(COLUMNS), filter=here).sort_by("offset")
        arrivals = list(self._arrivals(tp, records_))
        if len(arrivals) < records_.num_rows:
            self._ended.add(tp)
        if not arrivals:
            return None
        start, records = self._next[tp], [arrival.record for arrival in arrivals]
        self._next[tp] = records[-1].offset + 1
        # What stands behind the last event, an opening too, is read from the log.
        given = Contents(arrivals, (), arrivals[-1].kind.metadata.epoch)
        return Batch(tp, seek, start, records, given)

    def _arrivals(self, tp: TopicPartition, rows: pa.Table) -> Iterable[Arrival]:
        """Up to the first record that is no event."""
        times = rows.column("recorded_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        columns = (times if name == "recorded_at" else rows.column(name) for name in COLUMNS)
        for offset, by_itself, *meta, value in zip(*(column.to_pylist() for column in columns), strict=True):
            if by_itself is not None or None in meta:
                return
            metadata = Metadata(*meta)
            entity = metadata.subject
            elsewhere = partition_of(entity, self._partitions[tp[0]]) != tp[1]
            if elsewhere or metadata.epoch != FIRST_EPOCH or stream_of(tp[0], entity) in self._decided:
                return
            try:
                body = decode(value)
            except Undecodable:
                return
            record = Record(*tp, offset, entity.encode(), value, ())
            yield Arrival(record, entity, Event(metadata), Envelope(metadata, body), "")
