"""Records that no column can hold as they are: they park their key, and the others go on."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer

from services.kernel.envelope import Headers, write_headers
from services.kernel.serde import encode
from services.projection.parked import parked_keys, retry, show, skip
from services.projection.read_models import READ_MODELS
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, until
from tests.integration.projection.shop_log import history, order_life

PLACED = order_life("odd", random.Random(11))[0]
GOOD = write_headers(PLACED.metadata)
LONG = random.Random(1).randbytes(3000).hex().encode()


def with_header(name: str, value: bytes | None) -> list[tuple[str, bytes | None]]:
    return [*((one, held) for one, held in GOOD if one != name), (name, value)]


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        pytest.param(b"a\0b", [], id="key-with-zero"),
        pytest.param(b"a\0b", GOOD, id="key-with-zero-of-a-good-event"),
        pytest.param(LONG, [], id="long-key"),
        pytest.param(LONG, GOOD, id="long-key-of-a-good-event"),
        pytest.param(b"odd", with_header("ce_sequence", b"%d" % 2**63), id="version"),
        pytest.param(b"odd", with_header("ce_epoch", b"%d" % 2**31), id="epoch"),
        pytest.param(b"odd", with_header("ce_id", None), id="null-header"),
    ],
)
async def test_it_is_parked_and_can_be_skipped(
    shop: Shop, key: bytes, headers: list[tuple[str, bytes | None]] | Headers
) -> None:
    producer = Producer({"bootstrap.servers": shop.kafka, "log_level": 3})
    producer.produce("order.events", encode("order.events", PLACED.body), key, 0, headers=headers)
    producer.flush(30)
    others = history(3, 20)
    shop.writer.write_all(others, 10)
    await until(lambda: applied(shop.connection, others), "the others did not go on")

    of_orders = [model for model in READ_MODELS if "order.events" in model.topics]
    for model in of_orders:
        (waiting,) = await parked_keys(shop.connection, model.name)
        (event,) = await show(shop.connection, model.name, waiting.key)
        assert event.body is None
        assert (await retry(shop.connection, model, waiting.key)).left == 1
        assert (await skip(shop.connection, model, waiting.key, "no event of ours")).left == 0
    assert await parked_keys(shop.connection) == []
    assert shop.projection.child.poll() is None
