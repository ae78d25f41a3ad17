"""The guards of the projection's transaction, each against its fault. Real PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from services.kernel.record.codec import encode
from services.kernel.record.envelope import write_headers
from services.projection.engine import row_fold
from services.projection.engine.database import MIGRATIONS, migrate, pool
from services.projection.engine.position import lock_positions, require_own_tables
from services.projection.engine.projector import Projector
from services.projection.engine.read_model import (
    Batch,
    ForeignRecord,
    OtherCode,
    PositionLost,
    Record,
    SourceGap,
)
from services.projection.read_models import READ_MODELS, STOCK
from tests.integration.projection.shop_log import Event, envelope, opening, stock_life

PLACE = ("inventory.events", 0)
LIFE = stock_life("sku-1", random.Random(1))


@dataclass
class Bench:
    pool: asyncpg.Pool[Any]
    projector: Projector

    async def apply(
        self, events: Sequence[Event], start: int, first: int | None = None, seek: int = 0
    ) -> int:
        """Applies events as one batch that was fetched from `start`; their offsets begin at `first`."""
        begin = start if first is None else first
        records = [record(event, offset) for offset, event in enumerate(events, start=begin)]
        batch = Batch(PLACE, seek or self.projector.seek, start, records)
        return await self.projector.apply("stock", [batch])

    async def version(self) -> int:
        return int(await self.pool.fetchval("SELECT coalesce(max(version), 0) FROM stock.stock"))


def record(event: Event, offset: int) -> Record:
    value = encode(PLACE[0], event.body)
    return Record(*PLACE, offset, event.metadata.subject.encode(), value, write_headers(event.metadata))


@pytest.fixture
async def bench(fresh_database: str) -> AsyncIterator[Bench]:
    async with pool(fresh_database, 3) as connections:
        async with connections.acquire() as connection:
            await migrate(connection, READ_MODELS)
        projector = Projector(connections, [STOCK])
        await projector.assigned([PLACE], {PLACE[0]: 1})
        yield Bench(connections, projector)


async def test_what_is_already_applied_is_passed_over(bench: Bench) -> None:
    assert await bench.apply(LIFE[:3], 0) == 3
    assert await bench.apply(LIFE[:5], 0) == 2
    assert await bench.version() == 5


async def test_offsets_may_jump_inside_a_run_for_markers_and_aborted_records_are_offsets(
    bench: Bench,
) -> None:
    await bench.apply(LIFE[:3], 0)
    assert await bench.apply(LIFE[3:5], start=3, first=9) == 2
    assert await bench.version() == 5


async def test_a_source_that_skips_stops_the_process(bench: Bench) -> None:
    await bench.apply(LIFE[:3], 0)
    with pytest.raises(SourceGap):
        await bench.apply(LIFE[5:], 5)


async def test_what_was_fetched_before_a_seek_is_void(bench: Bench) -> None:
    before = bench.projector.seek
    await bench.projector.assigned([PLACE], {PLACE[0]: 1})
    assert await bench.apply(LIFE[:3], 0, seek=before) == 0
    assert await bench.version() == 0


@pytest.mark.parametrize(("events", "version"), [(LIFE[4:], 5), (LIFE[2:], 3)], ids=["missing", "twice"])
async def test_a_missing_or_doubled_event_parks_its_key_with_both_records_named(
    bench: Bench, events: Sequence[Event], version: int
) -> None:
    await bench.apply(LIFE[:3], 0)
    await bench.apply(events, 3)
    await bench.apply([envelope("sku-2", 1, LIFE[0].body)], 3 + len(events))
    parked = await bench.pool.fetch('SELECT version, kind, reason FROM parked ORDER BY "offset"')
    this, last = events[0].metadata.id, LIFE[2].metadata.id
    reason = f"version {version} (event {this}) follows version 3 (event {last})"
    assert parked[0] == (version, "forked", reason)
    assert {tuple(row)[1:] for row in parked[1:]} == {("behind", "behind a parked event")}
    rows = await bench.pool.fetch("SELECT sku, version FROM stock.stock ORDER BY sku")
    assert rows == [("sku-1", 3), ("sku-2", 1)]


async def test_a_key_that_another_process_parked_stops_here_too(bench: Bench) -> None:
    """A rebuild parks a forked key; the projection beside it must not apply the next version."""
    await bench.apply(LIFE[:3], 0)
    await bench.pool.execute(
        "INSERT INTO parked VALUES ('stock', 'sku-1', 3, $1, 0, 2, '', '', '', 'forked', now(), 'forked')",
        PLACE[0],
    )
    await bench.apply(LIFE[3:4], 3)
    assert await bench.version() == 3
    assert await bench.pool.fetchval("SELECT kind FROM parked WHERE version = 4") == "behind"


async def test_a_zombie_loses_its_position(bench: Bench) -> None:
    other = Projector(bench.pool, [STOCK])
    await other.assigned([PLACE], {PLACE[0]: 1})
    await bench.apply(LIFE[:3], 0)
    with pytest.raises(PositionLost):
        await Bench(bench.pool, other).apply(LIFE[:2], 0)
    assert await bench.version() == 3


async def test_an_epoch_is_open_from_its_opening_on_and_closes_those_before(bench: Bench) -> None:
    other = [envelope("sku-2", version, LIFE[0].body, epoch=version) for version in (1, 2)]
    await bench.apply([*LIFE[:1], other[1], opening(2), LIFE[1], other[1]], 0)
    rows = await bench.pool.fetch('SELECT "offset", reason FROM foreign_record ORDER BY 1')
    assert rows == [(1, "epoch_not_open"), (3, "epoch_not_open")]
    assert await bench.pool.fetchval("SELECT key FROM parked") == "sku-2"  # its version 1 is missing
    at = await bench.pool.fetch("SELECT next_offset, epoch FROM position WHERE read_model = 'stock'")
    assert (at, await bench.version()) == ([(5, 2)], 1)


async def test_foreign_records_are_counted_once_however_often_they_are_read(bench: Bench) -> None:
    foreign: list[ForeignRecord] = []
    huge = envelope("sku-1", 1, LIFE[0].body, epoch=2**31 - 1)
    for report in (foreign.extend, foreign.extend):
        projector = Projector(bench.pool, [STOCK], skipped=report)
        await projector.assigned([PLACE], {PLACE[0]: 1})
        await bench.pool.execute("UPDATE position SET next_offset = 0")
        await projector.assigned([PLACE], {PLACE[0]: 1})
        await Bench(bench.pool, projector).apply([huge, huge], 0)
    assert foreign == [ForeignRecord(*PLACE, offset, "epoch_not_open") for offset in (0, 1)]
    assert await bench.pool.fetchval("SELECT records FROM foreign_count") == 2
    assert await bench.pool.fetchval("SELECT count(*) FROM foreign_record") == 2
    assert await bench.pool.fetchval("SELECT next_offset FROM position WHERE read_model = 'stock'") == 2


async def test_of_many_foreign_records_the_first_are_kept_and_all_are_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_fold, "KEPT", 3)
    huge = envelope("sku-1", 1, LIFE[0].body, epoch=2**31 - 1)
    await bench.apply([huge] * 2, 0)
    await bench.apply([huge] * 4, 2)
    kept = await bench.pool.fetch('SELECT "offset" FROM foreign_record ORDER BY 1')
    assert kept == [(0,), (1,), (2,)]
    assert await bench.pool.fetchval("SELECT records FROM foreign_count") == 6


async def test_rows_that_a_rebuild_made_under_other_decisions_stop_the_process(bench: Bench) -> None:
    """The process still has the decisions that it read at its start."""
    await bench.apply(LIFE[:3], 0)
    await bench.pool.execute("UPDATE position SET generation = generation + 1")
    with pytest.raises(PositionLost):
        await bench.apply(LIFE[3:4], 3)
    assert await bench.version() == 3


async def test_tables_that_other_code_made_stop_the_process(bench: Bench) -> None:
    await bench.pool.execute("COMMENT ON SCHEMA stock IS 'another fingerprint'")
    with pytest.raises(OtherCode, match="stock"):
        await bench.projector.assigned([PLACE], {PLACE[0]: 1})
    async with bench.pool.acquire() as connection:
        with pytest.raises(OtherCode, match="stock"):
            await lock_positions(connection, STOCK)


async def test_tables_from_before_fingerprints_are_those_of_the_code_that_migrates(bench: Bench) -> None:
    await bench.pool.execute("COMMENT ON SCHEMA stock IS NULL")
    async with bench.pool.acquire() as connection:
        with pytest.raises(OtherCode):
            await require_own_tables(connection, READ_MODELS)
        assert await migrate(connection, READ_MODELS) == []
        await require_own_tables(connection, READ_MODELS)


async def test_rows_and_position_are_one(bench: Bench) -> None:
    """If the commit of a batch fails, neither rows nor position change."""
    await bench.apply(LIFE[:3], 0)
    await bench.pool.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '57014'; END $$"
    )
    await bench.pool.execute(
        "CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON stock.stock DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(asyncpg.QueryCanceledError):
        await bench.apply(LIFE[3:5], 3)
    at = await bench.pool.fetchval("SELECT next_offset FROM position WHERE read_model = 'stock'")
    assert (at, await bench.version()) == (3, 3)


async def test_migrations_are_applied_once_however_many_start_together(fresh_database: str) -> None:
    import asyncio

    all_of_them = list(range(1, 1 + len(list(MIGRATIONS.glob("*.sql")))))

    async def start() -> list[int]:
        async with pool(fresh_database, 1) as connections, connections.acquire() as connection:
            return await migrate(connection, READ_MODELS)

    assert sorted(await asyncio.gather(start(), start(), start())) == [[], [], all_of_them]
