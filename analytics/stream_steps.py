"""Finds the records that are not the next event of their stream, in Arrow batches sorted by key and offset.

A key may fill many batches, and a batch may contain many keys. Nearly all batches contain only next events, which
a comparison of columns shows; only the other batches are read row by row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

GIVEN = """
    topic string, partition int, offset long, entity string, version int, epoch long, kind string,
    verdict string, readable boolean
"""
_TEXT, _LONG = pa.string(), pa.int64()
FOUND = pa.schema(
    {"topic": _TEXT, "partition": pa.int32(), "offset": _LONG, "entity": _TEXT, "epoch": _LONG, "what": _TEXT}
)
"""`what` is the reason of a foreign record, `opening`, a step that is not `next` (of a key that stops, the
first alone), or `epoch`: one row for the first and one for the last event of each epoch in a partition."""
EPOCH, APPLIED = "epoch", "applied"
STOPPED = ("forked", "unreadable")

TopicPartition: TypeAlias = tuple[str, int]
Columns: TypeAlias = Mapping[str, pa.Array]


def exceptions(batches: Iterator[pa.RecordBatch], partitions: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of GIVEN, sorted by topic, partition, entity and offset, to rows of FOUND. `partitions` is
    how many each topic has."""
    steps = _Steps(partitions)
    for batch in batches:
        if batch.num_rows:
            steps.add_batch({name: batch.column(name) for name in batch.schema.names})
            yield _batch(steps.exception_rows)
            steps.exception_rows.clear()
    yield _batch(steps.ranges())


def _batch(rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(FOUND.names, row, strict=True)) for row in rows], FOUND)


@dataclass
class _Steps:
    """`name`: the current key; `home`: whether it is in its own partition; `read`: its version."""

    partitions: Mapping[str, int]
    exception_rows: list[tuple[Any, ...]] = field(default_factory=list)
    name: tuple[str, int, str | None] | None = None
    home: bool = True
    read: int = 0
    stopped: bool = False
    _epochs: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)

    def add_batch(self, columns: Columns) -> None:
        """Processes one batch."""
        new = _first_of_keys(columns)
        at = [columns[name][0].as_py() for name in ("topic", "partition", "entity")]
        new[0] = tuple(at) != self.name
        homes = _in_home_partition(columns, new, self.partitions, self.home)
        self.home = bool(homes[-1])
        if homes.all() and self._all_next(columns, new):
            self._skip_batch(columns)
        else:
            rows = zip(*(columns[name].to_pylist() for name in columns), strict=True)
            for row, home in zip(rows, homes.tolist(), strict=True):
                self._add_row(dict(zip(columns, row, strict=True)), home)

    def ranges(self) -> Iterator[tuple[Any, ...]]:
        for (topic, partition, epoch), offsets in self._epochs.items():
            for offset in offsets:
                yield topic, partition, offset, None, epoch, EPOCH

    def _all_next(self, columns: Columns, new: Any) -> bool:
        plain = columns["kind"].null_count == columns["verdict"].null_count == len(new)
        if not plain or columns["version"].null_count or not pc.all(columns["readable"]).as_py():
            return False
        versions = columns["version"].to_numpy()
        expected = np.where(new, 1, np.concatenate(([self.read], versions[:-1])) + 1)
        return bool((versions == expected).all()) and not (self.stopped and not new[0])

    def _skip_batch(self, columns: Columns) -> None:
        """Skips a batch that contains only next events."""
        last = {name: column[-1].as_py() for name, column in columns.items()}
        self.name, self.stopped = (last["topic"], last["partition"], last["entity"]), False
        self.read = last["version"]
        table = pa.table(dict(columns)).group_by(["topic", "partition", "epoch"])
        for row in table.aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
            partition_key = (row["topic"], row["partition"], row["epoch"])
            self._record_epoch(partition_key, row["offset_min"], row["offset_max"])

    def _record_epoch(self, partition_key: tuple[str, int, int], first: int, last: int) -> None:
        seen = self._epochs.get(partition_key, (first, last))
        self._epochs[partition_key] = min(seen[0], first), max(seen[1], last)

    def _add_row(self, row: Mapping[str, Any], home: bool) -> None:
        name = (row["topic"], row["partition"], row["entity"])
        if name != self.name:
            self.name, self.read, self.stopped = name, 0, False
        what = self._foreign(row, home) or self._step(row)
        if what is not None:
            self.exception_rows.append((*name[:2], row["offset"], name[2], row["epoch"], what))

    def _foreign(self, row: Mapping[str, Any], home: bool) -> str | None:
        """The reason; `opening` for what is no event either."""
        kind: str | None = row["kind"]
        if kind is not None and kind != "epoch_not_open":
            return kind
        if not home:
            return "wrong_partition"
        if row["version"] is None:
            return "no_version"
        return kind or ("decided" if row["verdict"] == "foreign" else None)

    def _step(self, row: Mapping[str, Any]) -> str | None:
        """Returns the step of an event; None for the next event, and for events behind one that stopped the key."""
        self._record_epoch((row["topic"], row["partition"], row["epoch"]), row["offset"], row["offset"])
        if self.stopped:
            return None
        version, verdict = row["version"], row["verdict"]
        if verdict == "genuine" and version <= self.read:
            return APPLIED
        self.stopped = verdict == "suspect" or version != self.read + 1
        if self.stopped:
            return "forked"
        self.stopped = not row["readable"]
        if self.stopped:
            return "unreadable"
        self.read = version
        return None


def _first_of_keys(columns: Columns) -> Any:
    """Tells whether each row has another key than the previous row."""
    new = np.ones(len(columns["entity"]), bool)
    parts = (columns[name] for name in ("topic", "partition", "entity"))
    differ = (pc.fill_null(pc.not_equal(part[1:], part[:-1]), True).to_numpy(False) for part in parts)
    new[1:] = np.logical_or.reduce(list(differ))
    return new


def _in_home_partition(columns: Columns, new: Any, partitions: Mapping[str, int], before: bool) -> Any:
    """Tells whether each row is in the partition of its key; computed once per key. `before`: the result for the
    key that continues from the previous batch."""
    keys = [key or "?" for key in columns["entity"].filter(pa.array(new)).to_pylist()]
    topics = columns["topic"].filter(pa.array(new)).to_pylist()
    numbers = columns["partition"].filter(pa.array(new)).to_numpy()
    sizes = np.array([partitions[topic] for topic in topics], np.int64)
    homes = (murmur2([key.encode() for key in keys]) & 0x7FFFFFFF) % sizes == numbers
    return np.concatenate(([before], homes))[np.cumsum(new)]


def murmur2(keys: Sequence[bytes]) -> Any:
    """Returns Kafka's hash of each key (org.apache.kafka.common.utils.Utils), as unsigned integers of 64 bits."""
    factor, lengths = np.uint32(0x5BD1E995), np.array([len(key) for key in keys], np.int64)
    hashes = np.zeros(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        same = np.flatnonzero(lengths == length)
        data = np.frombuffer(b"".join(keys[number] for number in same.tolist()), np.uint8).reshape(
            len(same), length
        )
        whole = length & ~3
        digest = np.full(len(same), 0x9747B28C ^ length, np.uint32)
        for word in np.ascontiguousarray(data[:, :whole]).view("<u4").T:
            mixed = word * factor
            mixed ^= mixed >> np.uint32(24)
            digest = (digest * factor) ^ (mixed * factor)
        if length > whole:
            for byte_number in range(length - whole):
                digest ^= data[:, whole + byte_number].astype(np.uint32) << np.uint32(8 * byte_number)
            digest *= factor
        digest ^= digest >> np.uint32(13)
        digest *= factor
        hashes[same] = digest ^ digest >> np.uint32(15)
    return hashes.astype(np.int64)
