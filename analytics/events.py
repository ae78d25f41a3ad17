"""The events of a log as Spark frames, whole or as of a moment, and in one order across partitions.

Marts and states follow from the frames, so they are as of the moment too. There are three ways to choose it:
- *happened*: what had happened by then in business time, even if it was recorded later;
- *recorded*: what the lake had recorded by then, which never changes (`open_lake`);
- `before(offsets)` of a log: exactly what an earlier run read; each output stores its offsets."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from analytics.errors import AnalyticsError


class Events(Protocol):
    """The log, the lake, or either as of some moment."""

    def of(self, type_name: str) -> DataFrame:
        """The events of a type: the columns of the envelope, then the fields of its newest schema."""
        ...


@dataclass(frozen=True)
class AsOf:
    """The events that had happened up to `moment` (aware, included), in business time."""

    log: Events
    moment: datetime

    def of(self, type_name: str) -> DataFrame:
        events = self.log.of(type_name)
        # Clocks differ: an order is not cancelled before it is placed.
        times = [name for name in ("occurred_at", "placed_at") if name in events.columns]
        return events.where(reduce(Column.__and__, (F.col(name) <= F.lit(self.moment) for name in times)))


@dataclass(frozen=True)
class EachTypeOnce:
    """The same events, each type's frame made once: to make one takes Spark a quarter of a second."""

    log: Events
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def of(self, type_name: str) -> DataFrame:
        if type_name not in self._frames:
            self._frames[type_name] = self.log.of(type_name)
        return self._frames[type_name]


class BrokenStream(AnalyticsError):
    """Two events that count have the same entity and version."""


def check_streams(events: DataFrame) -> None:
    """Raises BrokenStream unless each version of each entity counts once: a mart must not add one twice. The rule of
    the log leaves such a record out, so this finds an error of ours."""
    versions = events.groupBy("topic", "entity", "version").count().where("count > 1").limit(1).collect()
    for row in versions:
        raise BrokenStream(
            f"{row['count']} events have version {row['version']} of {row['entity']} in {row['topic']}: "
            "nothing is published"
        )


def moment(text: str) -> datetime:
    """ISO 8601: a day is its end, a time without an offset is UTC. Raises ValueError."""
    try:
        return datetime.combine(date.fromisoformat(text), time.max, UTC)
    except ValueError:
        parsed = datetime.fromisoformat(text)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


ORDER = ("moment", "topic", "partition", "offset")


def timeline(envelopes: DataFrame) -> DataFrame:
    """The envelopes with `moment`, by which sorted (ties: topic, partition, offset) they are one history.

    `moment` is the recorded time, but never before what stands earlier in the same partition: a clock that
    was set back may not turn a partition's own order around."""
    earlier = Window.partitionBy("topic", "partition").orderBy("offset")
    so_far = earlier.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return envelopes.withColumn("moment", F.max("recorded_at").over(so_far))
