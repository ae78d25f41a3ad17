"""A popular key is parked with many events: other keys are not slower, and it drains in portions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from contracts.inventory.events import StockReceived
from services.kernel.record.codec import encode
from services.kernel.record.envelope import write_headers
from services.projection.engine.database import migrate, pool
from services.projection.engine.parked_keys import PARKED_KEYS, RetryResult, parked_keys, retry
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import Batch, Record
from services.projection.read_models import READ_MODELS, STOCK
from tests.integration.projection.shop_log import envelope
from tests.waiting import wait_until_async

PLACE = ("inventory.events", 0)
BEHIND = 30_000
_COPIES = """
INSERT INTO parked
SELECT read_model, key, n, topic, partition, -n, headers, record_key, value, reason, now(), 'behind'
FROM parked, generate_series(1, $1::int) AS n"""
_ENTRIES_READ = """
SELECT sum(idx_tup_read) + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'parked')
FROM pg_stat_user_indexes WHERE relname = 'parked'"""


def record(sku: str, version: int, offset: int, value: bytes = b"") -> Record:
    event = envelope(sku, version, StockReceived(sku, 1, "DN-1", 1_291_000_000_000_000))
    value = value or encode(PLACE[0], event.body)
    return Record(*PLACE, offset, sku.encode(), value, write_headers(event.metadata))


@dataclass
class Bench:
    """One connection for the projection, to read its statistics, and one for the operator."""

    pool: asyncpg.Pool[Any]
    operator: Any
    projector: Projector
    offset: int = 0
    others: int = 0

    async def apply(self, *events: tuple[str, int, bytes]) -> None:
        records = [
            record(sku, version, self.offset + n, value) for n, (sku, version, value) in enumerate(events)
        ]
        batch = Batch(PLACE, self.projector.seek, self.offset, records)
        await self.projector.apply("stock", [batch])
        self.offset += len(records)

    async def another(self) -> None:
        self.others += 1
        await self.apply(("other", self.others, b""))

    async def version(self, sku: str) -> int:
        return int(await self.pool.fetchval("SELECT version FROM stock.stock WHERE sku = $1", sku) or 0)

    async def entries_read(self) -> int:
        await self.pool.fetchval("SELECT pg_stat_force_next_flush()")
        return int(await self.pool.fetchval(_ENTRIES_READ))


@pytest.fixture
async def bench(fresh_database: str) -> AsyncIterator[Bench]:
    async with pool(fresh_database, 1) as connections, pool(fresh_database, 1) as others:
        async with connections.acquire() as connection:
            await migrate(connection, READ_MODELS)
        projector = Projector(connections, [STOCK])
        await projector.assigned([PLACE], {PLACE[0]: 1})
        async with others.acquire() as operator:
            yield Bench(connections, operator, projector)


async def park_popular(bench: Bench, behind: int) -> None:
    """Parks the key at its unreadable first event, and then makes that event readable."""
    await bench.apply(("popular", 1, b"junk"))
    await bench.apply(*(("popular", 2 + n, b"") for n in range(behind)))
    cured = record("popular", 1, 0).value
    await bench.operator.execute("UPDATE parked SET value = $1 WHERE version = 1", cured)


async def drain_in_portions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[RetryResult]:
    """A retry in progress: a thousand events of one key, 50 at a time."""
    monkeypatch.setattr("services.projection.engine.parked_keys.PORTION", 50)
    await park_popular(bench, 999)
    return asyncio.create_task(retry(bench.operator, STOCK, "popular"))


async def test_other_keys_do_not_read_what_waits(bench: Bench) -> None:
    await bench.apply(("popular", 1, b"junk"))
    await bench.operator.execute(_COPIES, BEHIND)
    await bench.operator.execute("ANALYZE parked")
    before = await bench.entries_read()
    for _ in range(10):  # PostgreSQL plans anew for the first five
        await bench.another()
        await bench.apply(("popular", 2 + bench.others, b""), ("new", bench.others, b""))
        assert await bench.pool.fetch(PARKED_KEYS) == [("stock", 1)]
    assert await bench.entries_read() - before < 1000
    assert (await bench.version("popular"), await bench.version("new")) == (0, 10)


async def test_the_projection_goes_on_while_a_popular_key_drains(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining = await drain_in_portions(bench, monkeypatch)
    seen = set()
    while not draining.done():
        await bench.another()
        seen.add(await bench.version("popular"))
    assert (await draining).left == 0
    assert await bench.version("popular") == 1000
    assert len(seen) > 3, "it held the others up until all was applied"


async def test_an_interrupted_retry_keeps_what_it_has_done_and_the_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining = await drain_in_portions(bench, monkeypatch)
    await wait_until_async(lambda: bench.version("popular"), "a portion is applied", 60, every=0)
    draining.cancel()
    await asyncio.wait({draining})
    if bench.operator.is_in_transaction():  # cancelled in BEGIN; a command's connection ends with it
        await bench.operator.execute("ROLLBACK")
    done = await bench.version("popular")
    assert 0 < done < 1000
    assert done % 50 == 0
    await bench.apply(("popular", 1001, b""))  # it waits behind the others
    assert [key.events for key in await parked_keys(bench.operator)] == [1001 - done]
    drained = await retry(bench.operator, STOCK, "popular")
    assert (drained.applied, drained.left) == (1001 - done, 0)
    assert (await bench.version("popular"), await parked_keys(bench.operator)) == (1001, [])


async def test_a_portion_with_a_second_poison_is_applied_up_to_it(bench: Bench) -> None:
    await park_popular(bench, 9)
    await bench.operator.execute("UPDATE parked SET value = 'junk' WHERE version = 6")
    drained = await retry(bench.operator, STOCK, "popular")
    assert (drained.applied, drained.left) == (5, 5)
    assert drained.reason
    (key,) = await parked_keys(bench.operator)
    assert (key.version, key.reason, await bench.version("popular")) == (6, drained.reason, 5)
