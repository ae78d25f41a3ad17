"""The whole system as of a moment: the same frames, cut; so every mart and every entity's state follow.

Three ways to say when:
- *happened*: what had happened by then in business time, also if it was recorded later;
- *recorded*: what we knew by then: a late record is not seen before it was written;
- `Replay.before(offsets)`: exactly what some earlier reading saw; its offsets stand beside each output.
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
        read = datetime.fromisoformat(text)
        return read if read.tzinfo else read.replace(tzinfo=UTC)
