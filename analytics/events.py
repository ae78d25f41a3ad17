"""The events of a log as Spark frames, whole or as of a moment, and in one order across partitions.

Marts and states follow from the frames, so they are as of the moment too. There are three ways to choose it:
- *happened*: what had happened by then in business time, even if it was recorded later;
- *recorded*: what was recorded by then;
- `Replay.before(offsets)`: exactly what an earlier run read; each output stores its offsets.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Protocol

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


class Events(Protocol):
    """The log, the lake, or either as of some moment."""

    def of(self, type_name: str) -> DataFrame:
        """The events of a type: the columns of the envelope, then the fields of its newest schema."""
        ...


class Knowledge(StrEnum):
    """By which clock a moment is meant."""

    HAPPENED = "happened"
    RECORDED = "recorded"


CLOCKS = {Knowledge.HAPPENED: "occurred_at", Knowledge.RECORDED: "recorded_at"}


@dataclass(frozen=True)
class AsOf:
    """The events up to `moment` (aware, included), by one of the clocks."""

    log: Events
    moment: datetime
    knowledge: Knowledge = Knowledge.HAPPENED

    def of(self, type_name: str) -> DataFrame:
        return self.log.of(type_name).where(F.col(CLOCKS[self.knowledge]) <= F.lit(self.moment))


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
    was set back may not turn a partition's own order around.
    """
    earlier = Window.partitionBy("topic", "partition").orderBy("offset")
    so_far = earlier.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return envelopes.withColumn("moment", F.max("recorded_at").over(so_far))


def life(envelopes: DataFrame, correlation_id: str) -> DataFrame:
    """Everything that one command set off, of orders and of stock, in that order."""
    return timeline(envelopes).where(F.col("correlation_id") == correlation_id).orderBy(*ORDER)
