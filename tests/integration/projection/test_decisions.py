"""Decisions in `site.journal` correct the rows: live, after a restart and in a rebuild."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest

from contracts.kernel.records import RecordJudged, RecordVerdict
from contracts.order.events import OrderConfirmed
from services.kernel.log.control import write_journal
from services.kernel.log.rule import identity
from services.kernel.record.codec import encode
from services.kernel.record.envelope import uuid7
from services.projection.engine.parked_keys import parked_keys
from services.projection.engine.rebuild import replay_into
from services.projection.read_models import ORDERS, READ_MODELS
from tests.integration.projection.bad_records import STOPS, TOPIC, Planted, life
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, differences, stored_versions, tables, until
from tests.integration.projection.shop_log import Event, history

pytestmark = pytest.mark.long


async def whole(shop: Shop, events: list[Event]) -> bool:
    """Whether every read model is the fold of the owners' events, and no key is parked."""
    return not await parked_keys(shop.connection) and not await differences(shop.connection, events)


def forged_sale(own: list[Event]) -> Event:
    """A forged event that sells more than was ordered, in a country of its own."""
    confirmed = next(event for event in own if isinstance(event.body, OrderConfirmed))
    body = replace(confirmed.body, gross=999_000_000, units=777, country="Nowhere")
    return replace(confirmed, metadata=confirmed.metadata._replace(id=uuid7()), body=body)


def judge(shop: Shop, event: Event, verdict: RecordVerdict) -> None:
    about = identity(TOPIC, event.metadata, encode(TOPIC, event.body))
    write_journal(shop.kafka, [(about.stream, RecordJudged(*about, verdict, "a test", 0))])


async def stops(shop: Shop, keys: int) -> None:
    async def stopped() -> bool:
        return len(await parked_keys(shop.connection)) == 4 * keys

    await until(stopped, "the streams did not stop in every read model")


async def test_every_kind_is_resolved(shop: Shop) -> None:
    planted, others = Planted(shop.writer), history(5, 20)
    await asyncio.to_thread(shop.writer.write_all, others, 20)
    planted.plant(*STOPS)
    events = [*others, *planted.events]
    await stops(shop, len(STOPS))
    planted.judge(shop.kafka, *STOPS)
    await until(lambda: whole(shop, events), "the decisions were not applied")

    shop.projection.kill()
    shop.projection.start()
    await shop.projection.ready()
    more = history(6, 10)
    shop.writer.write_all(more, 20)
    await until(lambda: whole(shop, [*events, *more]), "after a restart the rows are others")
    before = {model.name: await tables(shop.connection, model) for model in READ_MODELS}
    replayed = await replay_into(shop.kafka, shop.database_url, READ_MODELS)
    assert [report.parked for report in replayed.values()] == [0] * len(READ_MODELS)
    assert {model.name: await tables(shop.connection, model) for model in READ_MODELS} == before


async def test_a_forged_sale_that_was_applied_is_taken_back(shop: Shop) -> None:
    """The forged event came first: row and sums contain it until the decision. A suspect one stops its stream."""
    own, others = life("victim"), history(5, 20)
    index = next(n for n, event in enumerate(own) if isinstance(event.body, OrderConfirmed))
    forged = forged_sale(own)
    shop.writer.write_all(others, 20)
    shop.writer.write([*own[:index], forged, *own[index:]])
    events = [*others, *own]
    sums = "SELECT coalesce(sum(units), 0) FROM sales_daily.sales_daily WHERE country = 'Nowhere'"

    async def sold() -> bool:
        return bool(await shop.connection.fetchval(sums) == 777 and await applied(shop.connection, others))

    await until(sold, "the forged sale was not applied")
    judge(shop, forged, "suspect")

    async def taken_back() -> bool:
        versions = await stored_versions(shop.connection, ORDERS, ["victim"])
        return versions == {"victim": index} and not await shop.connection.fetchval(sums)

    await until(taken_back, "the suspect event is still in the rows")
    assert {key.kind for key in await parked_keys(shop.connection)} == {"forked"}
    judge(shop, forged, "foreign")
    await until(lambda: whole(shop, events), "the decision was not applied")
    # and back: an operator may correct a decision
    judge(shop, forged, "genuine")
    await until(sold, "the last decision was not applied")
    judge(shop, forged, "foreign")
    await until(lambda: whole(shop, events), "the last decision was not applied")


async def test_copies_of_genuine_records_change_nothing(shop: Shop) -> None:
    own = life("victim")
    shop.writer.write([*own, *own])
    await stops(shop, 1)
    for event in own:
        judge(shop, event, "genuine")
    await until(lambda: whole(shop, own), "the copies still count")


async def test_a_rebuild_with_newer_decisions_makes_the_projection_begin_anew(shop: Shop) -> None:
    """The projection was frozen during a decision and a rebuild: it must not continue with its old state."""
    planted = Planted(shop.writer)
    planted.plant("forged next version")
    await stops(shop, 1)
    shop.projection.signal(signal.SIGSTOP)
    try:
        planted.judge(shop.kafka, "forged next version")
        rebuilt = await replay_into(shop.kafka, shop.database_url, READ_MODELS)
        assert [report.parked for report in rebuilt.values()] == [0] * len(READ_MODELS)
        counted = await shop.connection.fetch(
            "SELECT DISTINCT read_model, generation FROM position WHERE read_model = ANY($1)",
            [model.name for model in READ_MODELS],
        )
        assert {tuple(row) for row in counted} == {
            (model.name, int(model.stream == "order")) for model in READ_MODELS
        }
    finally:
        shop.projection.signal(signal.SIGCONT)

    async def begun_anew() -> bool:
        shop.projection.restart_if_ended()  # it was frozen in a transaction: see `WRITER_SETTINGS`
        return await whole(shop, planted.events)

    await until(begun_anew, "the rebuilt rows are others")
