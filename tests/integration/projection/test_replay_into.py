"""Read models filled in bulk equal the live ones, byte by byte: from the log, from the lake, under writes."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analytics.lake.writer import LakeLogReplaced, update
from infra.log import lake_runs
from infra.log.lake_runs import lake_for
from services.projection.engine import rebuild
from services.projection.engine.parked_keys import parked_keys
from services.projection.engine.rebuild import replay_into
from services.projection.read_models import ORDERS, READ_MODELS, SALES_DAILY, STOCK
from tests.integration.projection.conftest import Shop, lived
from tests.integration.projection.processes import applied, differences, tables, until
from tests.integration.projection.shop_log import fresh_topics, history, order_life

OF_ORDERS = 4
ALONGSIDE = {
    "parked": 'SELECT read_model, topic, partition, "offset", key, version, headers, reason FROM parked '
    "WHERE read_model = ANY($1)",
    "position": "SELECT * FROM position WHERE read_model = ANY($1)",
    "indexes": "SELECT schemaname, indexdef FROM pg_indexes WHERE schemaname = ANY($1)",
}


async def all_tables(shop: Shop) -> Mapping[str, Any]:
    """Every row of every read model, with parked records, positions and indexes."""
    contents: dict[str, Any] = {model.name: await tables(shop.connection, model) for model in READ_MODELS}
    names = list(contents)
    for name, query in ALONGSIDE.items():
        contents[name] = sorted(map(repr, await shop.connection.fetch(query, names)))
    return contents


@pytest.mark.parametrize("step", [60, rebuild.STEP])
async def test_all_read_models_from_one_reading_of_the_log(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(rebuild, "STEP", step)
    events = await lived(shop, 6, 150)
    before = await all_tables(shop)
    done = await replay_into(shop.kafka, shop.database_url, READ_MODELS)
    of_orders = sum(event.body.TYPE.startswith("daybook.order.") for event in events)
    assert {name: report.events for name, report in done.items()} == {
        model.name: len(events) - of_orders if model is STOCK else of_orders for model in READ_MODELS
    }
    assert await all_tables(shop) == before


async def poisoned(shop: Shop) -> None:
    """Writes one order that is parked in all its read models at an unreadable event."""
    victim = order_life("victim", random.Random(11))
    shop.writer.write(victim[:1])
    shop.writer.write_raw("order.events", victim[1].metadata, b"junk")
    shop.writer.write(victim[2:])

    async def all_parked() -> bool:
        keys = await parked_keys(shop.connection)
        return [key.events for key in keys] == [len(victim) - 1] * OF_ORDERS

    await until(all_parked, "the victim's events were not parked")


async def test_what_cannot_be_read_is_parked_as_in_the_live_ones(shop: Shop) -> None:
    await lived(shop, 7, 30)
    await poisoned(shop)
    before = await all_tables(shop)
    done = await replay_into(shop.kafka, shop.database_url, [ORDERS, SALES_DAILY])
    assert {report.parked for report in done.values()} == {1}
    assert await all_tables(shop) == before


async def test_a_killed_replay_leaves_the_live_tables_and_the_next_one_ends_it(shop: Shop) -> None:
    await lived(shop, 13, 150)
    before = await all_tables(shop)
    command = [sys.executable, "-m", "infra.cli", "replay", "--into", "all"]
    where = {"DAYBOOK_KAFKA": shop.kafka, "DAYBOOK_DATABASE_URL": shop.database_url}
    environment = {**os.environ, **where, "DAYBOOK_HOME": str(shop.folder / "no-stack-here")}
    job = subprocess.Popen(command, env=environment)
    begun = "SELECT to_regnamespace('stock_next') IS NOT NULL"
    try:
        await until(lambda: shop.connection.fetchval(begun), "it never began")
    finally:
        job.kill()
        job.wait(60)
    assert await shop.connection.fetchval(begun), "it was killed too late"
    for model in READ_MODELS:
        assert await tables(shop.connection, model) == before[model.name]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        model.name for model in READ_MODELS
    ]
    assert await all_tables(shop) == before


async def test_under_writes_the_new_tables_take_their_places_without_a_gap(shop: Shop) -> None:
    events = await lived(shop, 8, 100)
    more = history(9, 300)
    writing = asyncio.create_task(asyncio.to_thread(shop.writer.write_all, more, 5, spoil=0.2))
    await replay_into(shop.kafka, shop.database_url, READ_MODELS)
    await writing
    await until(lambda: applied(shop.connection, more), "not all events were applied")
    assert await differences(shop.connection, [*events, *more]) == []
    assert shop.projection.child.poll() is None, "the projection did not survive the change"


@pytest.mark.full
async def test_from_a_lake_that_ends_before_the_log(
    shop: Shop, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last record is unreadable: the replay reads the log from there on."""
    monkeypatch.setattr(lake_runs, "OFFSETS_AT_A_TIME", 70)
    await lived(shop, 10, 60)
    await poisoned(shop)
    folder = tmp_path / "lake"
    await asyncio.to_thread(update, spark, shop.kafka, folder, lambda _step: None)
    await lived(shop, 11, 20)
    before = await all_tables(shop)
    done = await replay_into(shop.kafka, shop.database_url, READ_MODELS, lake=lake_for(shop.kafka, folder))
    assert all(report.events for report in done.values())
    assert await all_tables(shop) == before

    fresh_topics(shop.kafka)
    with pytest.raises(LakeLogReplaced):
        lake_for(shop.kafka, folder)
