"""Every kind of record in every way of reading: live, restarted, rebuilt, replayed in bulk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.kernel.record.envelope import uuid7
from services.projection.engine.parked_keys import parked_keys
from services.projection.engine.rebuild import replay_into
from services.projection.read_models import CONVERSATIONS, ORDER_HISTORY, ORDERS, READ_MODELS, SALES_DAILY
from tests.integration.projection.bad_records import FOREIGN, KINDS, STOPS, Planted
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, until
from tests.integration.projection.shop_log import Event, history
from tests.scraped import metric

OF_ORDERS = (ORDERS, ORDER_HISTORY, SALES_DAILY, CONVERSATIONS)


async def planted(shop: Shop) -> tuple[Planted, list[Event]]:
    """Writes every kind among other orders, and waits until those are applied. Returns them too."""
    planted, others = Planted(shop.writer), history(5, 30)
    await asyncio.to_thread(shop.writer.write_all, others[:100], 20, spoil=0.2)
    planted.plant(*KINDS)
    await asyncio.to_thread(shop.writer.write_all, others[100:], 20, spoil=0.2)
    await until(lambda: applied(shop.connection, others), "the others did not go on")
    return planted, others


async def stops(connection: Any) -> list[Mapping[str, Any]]:
    """Kind, first version and number of events of each parked key, for each read model."""
    return [
        {key.key: (key.kind, key.version, key.events) for key in await parked_keys(connection, model.name)}
        for model in OF_ORDERS
    ]


def expected_stops(planted: Planted) -> Mapping[str, Any]:
    """A stream stops at the first record that does not follow, and the owner's later ones wait."""
    expected = {}
    for kind, stop in STOPS.items():
        own, version = planted.lives[kind], planted.records[kind].metadata.version
        behind = len(own) - 3 if kind == "forged next version" else len(own) - 2
        expected[own[0].metadata.subject] = (stop, version, 1 + behind)
    return expected


async def found_foreign(connection: Any) -> list[tuple[str, str]]:
    return [tuple(row) for row in await connection.fetch("SELECT topic, reason FROM foreign_record")]


async def check(shop: Shop, planted: Planted, others: list[Event]) -> None:
    assert await stops(shop.connection) == [expected_stops(planted)] * len(OF_ORDERS)
    expected = [("order.events", reason) for reason in FOREIGN.values()]
    assert sorted(await found_foreign(shop.connection)) == sorted(expected)
    whole = [event for kind in FOREIGN for event in planted.lives[kind]]
    assert await applied(shop.connection, [*whole, *others])


async def test_live_and_restarted(shop: Shop) -> None:
    log, others = await planted(shop)
    await check(shop, log, others)
    assert metric(shop.projection.port, "daybook_foreign_records_total") == len(FOREIGN)
    assert shop.projection.log_text().count('"foreign_record"') == len(FOREIGN)

    shop.projection.kill()
    shop.projection.start()
    await shop.projection.ready()
    more = history(6, 20)
    shop.writer.write_all(more, 20)
    await until(lambda: applied(shop.connection, more), "it did not go on after its restart")
    await check(shop, log, others)


async def test_rebuilt_and_replayed_in_bulk(shop: Shop) -> None:
    log, others = await planted(shop)
    rebuilt = await replay_into(shop.kafka, shop.database_url, [ORDERS])
    assert rebuilt["orders"].parked == len(STOPS)
    await check(shop, log, others)
    replayed = await replay_into(shop.kafka, shop.database_url, READ_MODELS)
    assert [report.parked for report in replayed.values()] == [len(STOPS)] * len(OF_ORDERS) + [0]
    await check(shop, log, others)
    count = await shop.connection.fetchval("SELECT sum(records) FROM foreign_count")
    assert count == len(FOREIGN), "a rebuild counted them again"

    # keys that the replay parked also stop in the live projection
    *_, last = own = log.lives["forged next version"]
    following = replace(last, metadata=last.metadata._replace(id=uuid7(), version=len(own) + 1))
    shop.writer.write([following])

    async def waits() -> bool:
        waiting = [keys[last.metadata.subject] for keys in await stops(shop.connection)]
        return waiting == [("forked", 3, len(own) - 1)] * len(OF_ORDERS)

    await until(waits, "the next event did not wait behind the fork")
