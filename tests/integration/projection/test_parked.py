"""An event that cannot be applied parks its key, in order, while the others go on."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from services.kernel.record.codec import encode
from services.projection.engine.parked_keys import NothingParked, StreamForked, parked_keys, retry, show, skip
from services.projection.engine.rebuild import replay_into, roll_back
from services.projection.read_models import CONVERSATIONS, ORDER_HISTORY, ORDERS, READ_MODELS, SALES_DAILY
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import (
    applied,
    differences,
    folded,
    running,
    stored_versions,
    until,
)
from tests.integration.projection.shop_log import history, order_life

pytestmark = pytest.mark.long

OF_ORDERS = (ORDERS, ORDER_HISTORY, SALES_DAILY, CONVERSATIONS)


async def test_a_poisoned_key_waits_in_order_and_drains_in_order(shop: Shop) -> None:
    victim, others = order_life("victim", random.Random(11)), history(3, 60)
    half = len(victim) // 2
    shop.writer.write(victim[:1])
    unknown = (0).to_bytes(1, "big") + (999_999).to_bytes(4, "big") + b"junk"
    shop.writer.write_raw("order.events", victim[1].metadata, unknown)
    shop.writer.write(victim[2 : half + 1])
    shop.writer.write_all(others, 5, spoil=0.2)
    shop.writer.write(victim[half + 1 :])
    await until(lambda: applied(shop.connection, others), "the others did not go on")

    async def all_parked() -> bool:
        keys = await parked_keys(shop.connection)
        return [key.events for key in keys] == [len(victim) - 1] * len(OF_ORDERS)

    await until(all_parked, "not all of the victim's later events were parked")
    seen = await show(shop.connection, ORDERS, "victim")
    assert [event.version for event in seen] == list(range(2, len(victim) + 1))
    assert "999999" in seen[0].reason
    assert {event.reason for event in seen[1:]} == {"behind a parked event"}
    assert (await retry(shop.connection, ORDERS, "victim")).applied == 0

    # the fix: the value becomes readable
    await shop.connection.execute(
        "UPDATE parked SET value = $1 WHERE version = 2", encode("order.events", victim[1].body)
    )
    for model in OF_ORDERS:
        drained = await retry(shop.connection, model, "victim")
        assert (drained.applied, drained.left) == (len(victim) - 1, 0)
    assert await parked_keys(shop.connection) == []
    assert await differences(shop.connection, [*victim, *others]) == []
    with pytest.raises(NothingParked):
        await retry(shop.connection, ORDERS, "victim")


async def test_a_skipped_event_is_left_out_and_later_events_follow(shop: Shop) -> None:
    victim = order_life("victim", random.Random(11))
    shop.writer.write(victim[:1])
    shop.writer.write_raw("order.events", victim[1].metadata, b"junk")
    shop.writer.write(victim[2:3])

    async def parked() -> bool:
        return len(await parked_keys(shop.connection)) == len(OF_ORDERS)

    await until(parked, "the victim was not parked")
    for model in OF_ORDERS:
        assert (await skip(shop.connection, model, "victim", "cannot be read")).left == 0
    shop.writer.write(victim[3:])
    await until(lambda: applied(shop.connection, victim), "later events did not follow")
    kept = [event for event in victim if event.metadata.version != 2]
    stored = await ORDERS.store("orders").load(shop.connection, ["victim"])
    expected = folded(ORDERS, kept)["victim"]
    assert stored["victim"] == expected._replace(row=replace(expected.row, content=None))
    assert await parked_keys(shop.connection) == []


async def test_a_rebuild_honours_what_was_skipped(shop: Shop) -> None:
    victim = order_life("victim", random.Random(11))
    shop.writer.write(victim[:1])
    shop.writer.write_raw("order.events", victim[1].metadata, b"junk")
    shop.writer.write(victim[2:])

    async def parked() -> bool:
        return len(await parked_keys(shop.connection)) == len(OF_ORDERS)

    await until(parked, "the victim was not parked")
    await skip(shop.connection, ORDERS, "victim", "cannot be read")
    for _ in range(2):  # the first must not forget it
        rebuilt = await replay_into(shop.kafka, shop.database_url, [ORDERS])
        assert rebuilt["orders"].parked == 0
    stored = await ORDERS.store("orders").load(shop.connection, ["victim"])
    assert stored["victim"].version == len(victim)


async def test_previous_tables_come_back_with_what_waits_in_them(shop: Shop) -> None:
    victim = order_life("victim", random.Random(11))
    shop.writer.write(victim[:1])
    shop.writer.write_raw("order.events", victim[1].metadata, b"junk")
    shop.writer.write(victim[2:3])

    async def waits() -> list[tuple[str, int]]:
        return [(key.read_model, key.events) for key in await parked_keys(shop.connection)]

    async def parked() -> bool:
        return len(await waits()) == len(OF_ORDERS)

    await until(parked, "the victim was not parked")
    for model in OF_ORDERS[1:]:
        await skip(shop.connection, model, "victim", "not of this test")
    await replay_into(shop.kafka, shop.database_url, [ORDERS])
    assert await waits() == [("orders", 2)]
    await skip(shop.connection, ORDERS, "victim", "cannot be read")
    assert await waits() == []
    shop.writer.write(victim[3:])
    await until(lambda: applied(shop.connection, victim), "later events did not follow")
    rolled_back = await roll_back(shop.kafka, shop.database_url, ORDERS)
    assert (rolled_back.events, rolled_back.parked) == (len(victim) - 3, 1)
    assert await waits() == [("orders", len(victim) - 1)]
    await skip(shop.connection, ORDERS, "victim", "cannot be read")
    assert (await stored_versions(shop.connection, ORDERS, ["victim"])) == {"victim": len(victim)}
    assert shop.projection.child.poll() is None, "its code is that of the tables"


async def test_a_fork_is_not_skipped_by_its_version(shop: Shop) -> None:
    victim = order_life("victim", random.Random(11))
    shop.writer.write([*victim[:2], victim[1]])

    async def parked() -> bool:
        return len(await parked_keys(shop.connection)) == len(OF_ORDERS)

    await until(parked, "the victim was not parked")
    with pytest.raises(StreamForked, match="order/victim"):
        await skip(shop.connection, ORDERS, "victim", "no")
    assert await shop.connection.fetchval("SELECT count(*) FROM skipped") == 0


async def test_what_an_older_reader_could_not_read_is_read_after_the_upgrade(
    shop: Shop, tmp_path: Path
) -> None:
    """A newer writer's event has a schema that is not in this reader's lock yet."""
    victim, others = order_life("victim", random.Random(11)), history(3, 10)
    shop.projection.stop()
    older = {
        "module": "tests.integration.projection.older",
        "test_without": victim[1].body.TYPE,
        "projection_group": f"older-{tmp_path.name}",
        "session_seconds": "6",
    }
    with running("project", shop.kafka, shop.database_url, tmp_path / "older.log", **older) as reader:
        await reader.ready()
        shop.writer.write_all([*victim, *others], 10)

        async def parked() -> bool:
            keys = await parked_keys(shop.connection)
            return sum(key.key == "victim" and key.kind == "unreadable" for key in keys) == len(OF_ORDERS)

        await until(parked, "the victim was passed or stopped others")
        assert (await ORDERS.store("orders").load(shop.connection, ["victim"]))["victim"].version == 1
    shop.projection.start()
    await shop.projection.ready()
    await until(lambda: applied(shop.connection, [*victim, *others]), "it was not tried again")
    assert await parked_keys(shop.connection) == []
    assert await differences(shop.connection, [*victim, *others]) == []


async def test_too_many_keys_that_the_code_fails_on_stop_the_process(shop: Shop) -> None:
    for number in range(101):
        _, second, *_ = order_life(f"order-{number}", random.Random(number))
        wrong = replace(
            second, metadata=second.metadata._replace(version=1)
        )  # of an order that was not placed
        shop.writer.write([wrong])
    await until(stopped(shop), "the projection went on")
    counts = {key.read_model for key in await parked_keys(shop.connection)}
    assert counts <= {model.name for model in READ_MODELS}
    for model in OF_ORDERS:
        assert sum(key.read_model == model.name for key in await parked_keys(shop.connection)) <= 100


def stopped(shop: Shop):  # type: ignore[no-untyped-def]
    async def check() -> bool:
        return shop.projection.child.poll() == 1

    return check
