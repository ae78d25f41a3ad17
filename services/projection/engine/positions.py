"""The positions of the read models, over HTTP."""

from __future__ import annotations

from pydantic import BaseModel

from services.edge.app import api_router
from services.kernel.record.envelope import format_time
from services.projection.engine.database import query_connection
from services.projection.engine.lag import LagMeasurement, LagPartition
from services.projection.engine.read_model import Connection
from services.projection.read_docs import RECORDED, Time, of_status
from services.projection.reader import AppSources, ReadRoute

PARTITION = {
    "topic": "order.events",
    "partition": 0,
    "position": 4711,
    "epoch": 1,
    "applied_at": RECORDED,
    "lag_events": 0,
    "lag_seconds": 0.0,
    "observed_at": RECORDED,
}
PROJECTION = {"read_model": "orders", "parked_keys": 0, "parked_events": 0, "partitions": [PARTITION]}
_PARTITIONS = """
SELECT * FROM position WHERE right(read_model, 9) <> '_previous' ORDER BY read_model, topic, partition"""
_PARKED = "SELECT read_model, count(DISTINCT key) AS keys, count(*) AS events FROM parked GROUP BY read_model"

router = api_router("projections", route_class=ReadRoute)


class PartitionStatus(BaseModel):
    """`position`: the next offset to apply; `applied_at`: when it moved last.

    The lag is that of `observed_at`: the events that are not applied (above 500 a bound), and the age of the
    oldest. It is null if unknown, and for a read model that is being rebuilt.
    """

    topic: str
    partition: int
    position: int
    epoch: int
    applied_at: Time
    lag_events: int | None
    lag_seconds: float | None
    observed_at: Time | None


class ProjectionStatus(BaseModel):
    """`parked_keys`: entities that wait behind an event that cannot be applied; `parked_events`: their events."""

    read_model: str
    parked_keys: int
    parked_events: int
    partitions: list[PartitionStatus]


class ProjectionsStatus(BaseModel):
    """Every read model, including running rebuilds."""

    projections: list[ProjectionStatus]


@router.get(
    "/projections",
    summary="Positions and lag of the read models",
    **of_status("All of them", {"projections": [PROJECTION]}),
)
async def list_projections(sources: AppSources) -> ProjectionsStatus:
    lag = sources.lag.measured
    partitions: dict[str, list[PartitionStatus]] = {}
    async with query_connection(sources.pool) as connection:
        parked = await _parked(connection)
        for row in await connection.fetch(_PARTITIONS):
            tp = LagPartition(row["read_model"], row["topic"], row["partition"])
            events, seconds, observed_at = _lag(lag, tp)
            partitions.setdefault(tp.read_model, []).append(
                PartitionStatus(
                    topic=tp.topic,
                    partition=tp.partition,
                    position=row["next_offset"],
                    epoch=row["epoch"],
                    applied_at=format_time(row["applied_at"]),
                    lag_events=events,
                    lag_seconds=seconds,
                    observed_at=observed_at,
                )
            )
    statuses = []
    for name, entries in partitions.items():
        keys, events = parked.get(name, (0, 0))
        statuses.append(
            ProjectionStatus(read_model=name, parked_keys=keys, parked_events=events, partitions=entries)
        )
    return ProjectionsStatus(projections=statuses)


async def _parked(connection: Connection) -> dict[str, tuple[int, int]]:
    """Returns the parked keys and events of each read model that has any."""
    return {row["read_model"]: (row["keys"], row["events"]) for row in await connection.fetch(_PARKED)}


def _lag(lag: LagMeasurement | None, tp: LagPartition) -> tuple[int, float, str] | tuple[None, None, None]:
    if lag is None or tp not in lag.behind:
        return None, None, None
    return (
        lag.behind[tp].records,
        lag.seconds(tp),
        format_time(lag.stored.observed_at),
    )
