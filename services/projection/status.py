"""What the query API reports of itself: the site's headers on every response, positions and lag at /projections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import structlog
from pydantic import BaseModel

from services.edge.app import api_router
from services.edge.identity import scopes
from services.projection.engine.database import QUERY_SECONDS, query_connection
from services.projection.engine.lag import LagMeasurement, LagPartition
from services.projection.engine.read_model import DATABASE_ERRORS
from services.projection.reads import RECORDED, AppSources, ReadRoute, Time, of_status

REFRESH_SECONDS = 1.0
# The guard writes its row each second. A row older than this is ignored.
GUARD_SECONDS = 10.0
_STATUS = """
SELECT role, mirror_seconds, extract(epoch FROM now() - observed_at)::float8 - 1 AS silent
FROM (VALUES ($1::text)) AS own(site) LEFT JOIN site USING (site)"""

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

log = structlog.get_logger(__name__)
router = api_router("projections", route_class=ReadRoute, dependencies=[scopes("ops:read")])


class SiteStatus:
    """The state of this site; `behind` returns the lag of its read models in seconds, None if unknown."""

    def __init__(self, site: str, behind: Callable[[], float | None]) -> None:
        self._site, self._behind = site, behind
        self._role: bytes | None = None
        self._mirror: float | None = 0.0
        self._responded_at = time.monotonic()

    def silent(self) -> float:
        """Returns for how many seconds PostgreSQL has not responded."""
        return time.monotonic() - self._responded_at

    async def follow(self, pool: asyncpg.Pool[Any]) -> None:
        """Updates the status until cancelled."""
        while True:
            try:
                async with asyncio.timeout(QUERY_SECONDS):
                    self._update(await pool.fetchrow(_STATUS, self._site))
                self._responded_at = time.monotonic()
            except DATABASE_ERRORS as error:
                log.warning("site status not known", error=repr(error))
            await asyncio.sleep(REFRESH_SECONDS)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers; an unknown value has none."""
        headers = [(b"daybook-site", self._site.encode())]
        if self._role is not None and self.silent() < GUARD_SECONDS:
            headers.append((b"daybook-role", self._role))
        behind, mirror = self._behind(), self._mirror
        if behind is None or mirror is None:
            return headers
        return [*headers, (b"daybook-lag-seconds", f"{behind + mirror:.3f}".encode())]

    def _update(self, row: Any) -> None:
        """Sets role and mirror lag; the mirror lag is 0 at an active site and with one site."""
        self._role, self._mirror = None, 0.0
        if row["role"] is None:
            return
        if row["silent"] > GUARD_SECONDS:
            self._mirror = None
            return
        self._role = row["role"].encode()
        if row["role"] == "passive":
            mirror = row["mirror_seconds"]
            self._mirror = None if mirror is None else mirror + max(0.0, row["silent"])


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
    statuses: dict[str, ProjectionStatus] = {}
    async with query_connection(sources.pool) as connection:
        parked = {row["read_model"]: row for row in await connection.fetch(_PARKED)}
        rows = await connection.fetch(_PARTITIONS)
    for row in rows:
        name = row["read_model"]
        if name not in statuses:
            counts = parked.get(name, {"keys": 0, "events": 0})
            statuses[name] = ProjectionStatus(
                read_model=name, parked_keys=counts["keys"], parked_events=counts["events"], partitions=[]
            )
        lag_fields = _lag_fields(lag, LagPartition(name, row["topic"], row["partition"]))
        partition = PartitionStatus(**row, **lag_fields, position=row["next_offset"])
        statuses[name].partitions.append(partition)
    return ProjectionsStatus(projections=list(statuses.values()))


def _lag_fields(lag: LagMeasurement | None, tp: LagPartition) -> dict[str, Any]:
    if lag is None or tp not in lag.behind:
        return {"lag_events": None, "lag_seconds": None, "observed_at": None}
    seconds, observed_at = lag.seconds(tp), lag.stored.observed_at
    return {"lag_events": lag.behind[tp].records, "lag_seconds": seconds, "observed_at": observed_at}
