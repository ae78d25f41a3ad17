"""A rebuilt read model equals the live one, byte by byte, and replaces it under writes."""

from __future__ import annotations

import asyncio

import pytest

from services.projection.engine.rebuild import NothingToRebuild, replay_into
from services.projection.read_models import READ_MODELS, SALES_DAILY
from tests.integration.projection.conftest import Shop, lived
from tests.integration.projection.processes import applied, differences, tables, until
from tests.integration.projection.shop_log import history


async def test_rebuilt_tables_are_byte_equal(shop: Shop) -> None:
    await lived(shop, 4, 200)
    for model in READ_MODELS:
        before = await tables(shop.connection, model)
        assert any(before.values())
        rebuilt = (await replay_into(shop.kafka, shop.database_url, [model]))[model.name]
        assert rebuilt.parked == 0
        assert await tables(shop.connection, model) == before
        assert await tables(shop.connection, model, f"{model.name}_previous") == before
    assert not await shop.connection.fetch("SELECT FROM pg_namespace WHERE nspname ~ '(_next|_replaced)$'")


async def test_a_rebuild_under_writes_changes_place_without_a_gap(shop: Shop) -> None:
    events = history(5, 600)
    half = len(events) // 2
    shop.writer.write_all(events[:half], 20, spoil=0.2)
    writing = asyncio.create_task(asyncio.to_thread(shop.writer.write_all, events[half:], 5, spoil=0.2))
    for model in READ_MODELS:
        rebuilt = (await replay_into(shop.kafka, shop.database_url, [model]))[model.name]
        assert rebuilt.switch_seconds < 10
    await writing
    await until(lambda: applied(shop.connection, events), "not all events were applied")
    assert await differences(shop.connection, events) == []
    assert shop.projection.child.poll() is None, "the projection did not survive the change"


async def test_nothing_to_rebuild_before_the_projection_has_run(kafka: str, fresh_database: str) -> None:
    import asyncpg

    from services.projection.engine.database import migrate

    connection = await asyncpg.connect(fresh_database)
    try:
        await migrate(connection, READ_MODELS)
    finally:
        await connection.close()
    with pytest.raises(NothingToRebuild):
        await replay_into(kafka, fresh_database, [SALES_DAILY])
