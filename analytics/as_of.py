"""The whole system as of a moment: the same frames, filtered; marts and states follow from them.

Three ways to choose the moment:
- *happened*: what had happened by then in business time, even if it was recorded later;
- *recorded*: what was recorded by then;
- `Replay.before(offsets)`: exactly what an earlier run read; each output stores its offsets.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.events import Events


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
