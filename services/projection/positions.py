"""Where the read models stand, for people."""

from __future__ import annotations

from services.kernel.envelope import format_time
from services.kernel.read_model import Connection
from services.projection.answers import PartitionAnswer, ProjectionAnswer, ProjectionsAnswer

_PARTITIONS = """
SELECT p.*, l.events, l.seconds, l.observed_at
FROM position p LEFT JOIN lag l USING (read_model, topic, partition)
ORDER BY read_model, topic, partition"""
_PARKED = "SELECT read_model, count(DISTINCT key) AS keys, count(*) AS events FROM parked GROUP BY read_model"


async def projections(connection: Connection) -> ProjectionsAnswer:
    """Every read model with its partitions, rebuilds that are under way included."""
    parked = {row["read_model"]: (row["keys"], row["events"]) for row in await connection.fetch(_PARKED)}
    partitions: dict[str, list[PartitionAnswer]] = {}
    for row in await connection.fetch(_PARTITIONS):
        seen = row["observed_at"]
        partitions.setdefault(row["read_model"], []).append(
            PartitionAnswer(
                row["topic"],
                row["partition"],
                row["next_offset"],
                row["epoch"],
                row["events"],
                row["seconds"],
                None if seen is None else format_time(seen),
            )
        )
    return ProjectionsAnswer(
        [ProjectionAnswer(name, *parked.get(name, (0, 0)), found) for name, found in partitions.items()]
    )
