"""The log folded by the domain's own code: each entity's events in the log's order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analytics.decoder import UndecodableValue, read_event
from analytics.replay import Replay
from contracts.lock import Lock, load_lock

ROWS_PER_BATCH = 5000
FORGET_EVERY = 200
Row = dict[str, Any]
# A sound domain raises none of these; on a damaged stream, the first that does is where it breaks.
_CANNOT_FOLLOW = (UndecodableValue, AssertionError, LookupError, AttributeError, TypeError, ValueError)


@dataclass(frozen=True)
class DomainFold:
    """How one kind of entity is folded and observed.

    `decider` is the domain's own; `observe(state, event, row)` returns the fields as they are after `event`, from
    those before it (`start` at first). `fields` are the result's columns as SQL types."""

    types: str
    decider: Any
    observe: Callable[[Any, Any, Row], Row]
    start: Row
    fields: str


def folded(log: Replay, fold: DomainFold, every_version: bool = False) -> DataFrame:
    """One row per entity: entity, version, the fold's fields, and `broken_at`; or one per event.

    `broken_at` is the first version that is missing, repeated, undecodable or cannot follow its predecessor
    (I3); null where there is none."""
    schema = StructType.fromDDL(f"entity string, version bigint, {fold.fields}, broken_at bigint")
    events = log.log.where(F.col("fault").isNull() & F.col("type").startswith(fold.types))
    ordered = events.select("entity", "partition", "offset", "version", "value").repartition("entity")
    ordered = ordered.sortWithinPartitions("entity", "partition", "offset")
    run = partial(_fold_batches, fold=fold, schema=to_arrow_schema(schema), every_version=every_version)
    return ordered.mapInArrow(run, schema)


def _fold_batches(
    batches: Iterator[pa.RecordBatch], fold: DomainFold, schema: pa.Schema, every_version: bool
) -> Iterator[pa.RecordBatch]:
    lock = load_lock()
    rows: list[Row] = []
    for entity, events in groupby(_events(batches), key=itemgetter(0)):
        stream = FoldedStream(entity, fold, lock)
        for _, version, value in events:
            stream.add(version, value)
            if every_version:
                rows.append(stream.row)
        if not every_version:
            rows.append(stream.row)
        if len(rows) >= ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows = []
    yield pa.RecordBatch.from_pylist(rows, schema)


def _events(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, bytes]]:
    for batch in batches:
        yield from zip(
            *(batch.column(name).to_pylist() for name in ("entity", "version", "value")), strict=True
        )


class FoldedStream:
    """One entity while it is folded."""

    def __init__(self, entity: str, fold: DomainFold, lock: Lock) -> None:
        self.entity = entity
        self._fold, self._lock = fold, lock
        self._state, self._fields = fold.decider.initial, fold.start
        self._version = 0
        self._broken_at: int | None = None

    @property
    def row(self) -> Row:
        return {"entity": self.entity, "version": self._version, **self._fields, "broken_at": self._broken_at}

    def add(self, version: int, value: bytes) -> None:
        if version != self._version + 1:
            self._break(min(version, self._version + 1))
        try:
            event = read_event(value, self._lock)
            self._state = self._fold.decider.evolve(self._state, event)
            self._fields = self._fold.observe(self._state, event, self._fields)
        except _CANNOT_FOLLOW:
            self._break(version)
        if version % FORGET_EVERY == 0:
            # What a long-lived entity keeps only for late commands would make the fold slower and slower.
            self._state = self._fold.decider.forget(self._state, version)
        self._version = version

    def _break(self, version: int) -> None:
        if self._broken_at is None:
            self._broken_at = version
