"""The whole shop in a rig, stocked, and how far behind any of it is."""

from __future__ import annotations

import asyncio
import time

import asyncpg

from tests.bench.generator import Load, send
from tests.bench.harness import Unmeasurable
from tests.bench.rig import Rig
from tests.scraped import metric

FIRST = ("order-worker", "inventory-worker", "projection")
SECOND = ("order-api", "inventory-api", "query-api")
WORKERS = ("order-worker", "inventory-worker")
SKUS = 5000
PATIENCE_SECONDS = 120.0
_LAG = """
SELECT coalesce(max(events), 0)
FROM (SELECT sum(events) AS events FROM lag GROUP BY read_model) AS l"""


def start_shop(rig: Rig, *, stocked: bool = True, **settings: object) -> None:
    """All six processes, ready; with `stocked` every SKU that the generator names is there in plenty."""
    query = rig.shop("query-api", **settings)
    rig.await_ready(query)
    rig.await_ready(*(rig.shop(name, **settings) for name in FIRST))
    rig.await_ready(*(rig.shop(name, **settings) for name in SECOND if name != "query-api"))
    if stocked:
        _receive(rig)


def _receive(rig: Rig) -> None:
    """One receipt of every SKU."""
    everything = Load(
        rig.parts["inventory-api"].port, "receipt", "opening", 64, PATIENCE_SECONDS, warm=0.0, most=SKUS
    )
    if refused := send(everything).refused:
        raise Unmeasurable(f"{refused} receipts were refused")


def behind(rig: Rig) -> int:
    """Commands that wait for the workers, plus events that wait for the read model furthest behind."""
    waiting = sum(metric(rig.parts[name].port, "daybook_lag_events") for name in WORKERS)
    return int(waiting) + asyncio.run(_projection_lag(rig.database_url))


def await_rest(rig: Rig, seconds: float = PATIENCE_SECONDS) -> float:
    """Wait until nothing is behind, twice in a row as it is observed every 2 s; how long that took."""
    began, calm = time.monotonic(), 0
    while calm < 2:
        time.sleep(1.1)
        calm = calm + 1 if behind(rig) <= 4 else 0  # a marker behind the last record is no event
        if time.monotonic() - began > seconds:
            raise Unmeasurable(f"still {behind(rig)} behind after {seconds:.0f} s")
    return time.monotonic() - began


async def _projection_lag(database_url: str) -> int:
    connection = await asyncpg.connect(database_url)
    try:
        return int(await connection.fetchval(_LAG))
    finally:
        await connection.close()
