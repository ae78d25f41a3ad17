"""If the log was replaced, the projection reports it and stops."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from services.projection.engine.position import LogReplaced
from services.projection.engine.rebuild import replay_into
from services.projection.read_models import SALES_DAILY
from tests.integration.projection.conftest import Shop, lived
from tests.integration.projection.processes import applied, tables, until
from tests.integration.projection.shop_log import (
    PARTITIONS,
    TOPICS,
    LogWriter,
    fresh_topics,
    history,
    order_life,
)

pytestmark = pytest.mark.long


async def test_a_log_that_ends_before_the_stored_position_stops_the_projection(shop: Shop) -> None:
    await now_shorter(shop)

    shop.projection.start()
    await stopped_and_logged(shop, "which ends at")


async def test_no_read_model_is_rebuilt_from_a_log_that_ends_before_its_position(shop: Shop) -> None:
    await now_shorter(shop)
    before = await tables(shop.connection, SALES_DAILY)

    with pytest.raises(LogReplaced, match="which ends at"):
        await replay_into(shop.kafka, shop.database_url, [SALES_DAILY])
    assert await tables(shop.connection, SALES_DAILY) == before


async def test_no_read_model_is_rebuilt_from_a_log_that_has_lost_its_beginning(shop: Shop) -> None:
    await lived(shop, 1, 40)
    lose_everything(shop.kafka)

    with pytest.raises(LogReplaced, match="is no longer in the log"):
        await replay_into(shop.kafka, shop.database_url, [SALES_DAILY])


async def test_a_log_that_is_made_anew_under_the_projection_stops_it(shop: Shop) -> None:
    await lived(shop, 1, 40)
    fresh_topics(shop.kafka)
    LogWriter(shop.kafka).write(order_life("new", random.Random(1)))

    await stopped_and_logged(shop, "LogReplaced")


async def test_a_log_that_has_lost_what_comes_next_stops_the_projection(shop: Shop) -> None:
    await lived(shop, 1, 40)
    assert shop.projection.stop() == 0
    shop.writer.write_all(history(2, 40), 10)
    lose_everything(shop.kafka)
    shop.writer.write_all(history(3, 40), 10)

    shop.projection.start()
    await stopped_and_logged(shop, "no longer in the log")


async def test_an_open_transaction_is_no_reason_to_stop(shop: Shop) -> None:
    """It keeps the last stable offset back; the position may be at it, never beyond the high watermark."""
    later = order_life("later", random.Random(2))
    await lived(shop, 1, 10)
    with LogWriter(shop.kafka).undecided(later):
        assert shop.projection.stop() == 0
        shop.projection.start()
        await shop.projection.ready()
    await until(lambda: applied(shop.connection, later), "what was open did not follow")


async def now_shorter(shop: Shop) -> None:
    """Stops the projection and replaces its log by a shorter one."""
    events = await lived(shop, 1, 40)
    assert shop.projection.stop() == 0
    fresh_topics(shop.kafka)
    LogWriter(shop.kafka).write_all(events[:-90], 10)


def lose_everything(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 3})
    partitions = [TopicPartition(topic, number, -1) for topic in TOPICS for number in range(PARTITIONS)]
    for deleted in admin.delete_records(partitions).values():
        deleted.result(30)


async def stopped_and_logged(shop: Shop, what: str) -> None:
    async def stopped() -> bool:
        if shop.projection.child.poll() is None:
            return False
        if (
            what not in shop.projection.log_text()
        ):  # it ended while there were no topics: restart it, like a supervisor
            shop.projection.start()
            return False
        return True

    await until(stopped, f"the projection went on, or ended without logging {what!r}")
    assert shop.projection.child.poll() == 1
    assert "empty database" in shop.projection.log_text()
