"""Where the read models stand, for people."""

from __future__ import annotations

from services.kernel.envelope import format_time
from services.kernel.read_model import Connection
from services.projection.answers import PartitionAnswer, ProjectionAnswer, ProjectionsAnswer
from services.projection.lag import Measured, Place

_PARTITIONS = "SELECT * FROM position ORDER BY read_model, topic, partition"
_PARKED = "SELECT read_model, count(DISTINCT key) AS keys, count(*) AS events FROM parked GROUP BY read_model"


async def projections(connection: Connection, lag: Measured | None) -> ProjectionsAnswer:
    """Every read model with its partitions, rebuilds that are under way included."""
    parked = {row["read_model"]: (row["keys"], row["events"]) for row in await connection.fetch(_PARKED)}
    partitions: dict[str, list[PartitionAnswer]] = {}
    for row in await connection.fetch(_PARTITIONS):
        place = Place(row["read_model"], row["topic"], row["partition"])
        partitions.setdefault(place.read_model, []).append(
            PartitionAnswer(
                place.topic,
                place.partition,
                row["next_offset"],
                row["epoch"],
                format_time(row["applied_at"]),
                *_lag(lag, place),
            )
        )
    return ProjectionsAnswer(
        [ProjectionAnswer(name, *parked.get(name, (0, 0)), found) for name, found in partitions.items()]
    )


def _lag(lag: Measured | None, place: Place) -> tuple[int, float, str] | tuple[None, None, None]:
    if lag is None or place not in lag.behind:
        return None, None, None
    return lag.behind[place].records, lag.seconds(place), format_time(lag.stored.observed_at)
