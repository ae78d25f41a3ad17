"""The projection killed and frozen under load: rows stay the fold, positions stay with the rows (I4, I5)."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from infra.lab.checker.evidence import Evidence, read_evidence, read_seen
from infra.lab.checker.invariants import check
from services.projection.read_models import READ_MODELS
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import Process, applied, differences, running, until
from tests.integration.projection.shop_log import history

pytestmark = pytest.mark.long

KILLS = 4
FREEZES = 2
LONGER_THAN_A_SESSION = 8.0


async def test_kills_and_freezes_under_load(shop: Shop) -> None:
    events, rng = history(7, 1500), random.Random(7)
    writing = asyncio.create_task(asyncio.to_thread(shop.writer.write_all, events, 3, spoil=0.2))
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(0.3, 1.5))
        shop.projection.kill()
        shop.projection.start()
        await shop.projection.ready()
    with running(
        "project", shop.kafka, shop.database_url, shop.folder / "second.log",
        projection_group=f"projection-{shop.folder.name}", session_seconds="6",
    ) as second:  # fmt: skip
        for frozen in (shop.projection, second)[:FREEZES]:
            await asyncio.sleep(rng.uniform(0.3, 1.5))
            frozen.signal(signal.SIGSTOP)
            await asyncio.sleep(LONGER_THAN_A_SESSION)
            frozen.signal(signal.SIGCONT)
            await asyncio.sleep(1)
            frozen.restart_if_ended()
        await writing
        await until(lambda: applied_with(shop, second, events), "not all events were applied", 120)
        assert await differences(shop.connection, events) == []
    await positions_are_where_the_rows_are(shop, len(events))
    seen = await asyncio.to_thread(read_seen, shop.database_url)
    violations = check(Evidence(read_evidence(shop.kafka), seen=seen))
    assert len(seen) > len(events) / 2
    assert [violation for violation in violations if violation.invariant == "I5"] == []


async def applied_with(shop: Shop, second: Process, events: list) -> bool:  # type: ignore[type-arg]
    """Restarts a process that was fenced and stopped, as a supervisor does; whether all events are applied."""
    shop.projection.restart_if_ended()
    second.restart_if_ended()
    return await applied(shop.connection, events)


async def positions_are_where_the_rows_are(shop: Shop, count: int) -> None:
    """All read models of one log have the same positions, and every event is counted once."""
    rows = await shop.connection.fetch("SELECT * FROM position")
    stands: dict[tuple[str, int], set[int]] = {}
    for row in rows:
        stands.setdefault((row["topic"], row["partition"]), set()).add(row["next_offset"])
    assert all(len(offsets) == 1 for offsets in stands.values()), stands
    assert len(rows) == 2 * len(READ_MODELS)
    entries = await shop.connection.fetchval("SELECT count(*) FROM order_history.entry")
    stock_events = await shop.connection.fetchval("SELECT sum(version) FROM stock.stock")
    assert entries + stock_events == count
