"""Records that no column can store: foreign ones are skipped, an event of ours parks its key."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from services.kernel.record.codec import encode
from services.kernel.record.envelope import Headers, write_headers
from services.projection.engine.parked_keys import parked_keys, retry, show, skip
from services.projection.read_models import READ_MODELS
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, until
from tests.integration.projection.shop_log import history, order_life

pytestmark = pytest.mark.long

PLACED = order_life("odd", random.Random(11))[0]
GOOD = write_headers(PLACED.metadata)
LONG = random.Random(1).randbytes(3000).hex().encode()


def with_header(name: str, value: bytes | None) -> list[tuple[str, bytes | None]]:
    return [*((header, content) for header, content in GOOD if header != name), (name, value)]


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        pytest.param(b"a\0b", [], id="key-with-zero"),
        pytest.param(b"a\0b", GOOD, id="key-with-zero-of-a-good-event"),
        pytest.param(LONG, [], id="long-key"),
        pytest.param(LONG, with_header("ce_subject", LONG), id="long-key-of-a-good-event"),
        pytest.param(b"odd", with_header("ce_sequence", b"%d" % 2**63), id="version"),
        pytest.param(b"odd", with_header("ce_epoch", b"%d" % 2**31), id="epoch"),
        pytest.param(b"odd", with_header("ce_id", None), id="null-header"),
    ],
)
async def test_it_is_foreign(
    shop: Shop, key: bytes, headers: list[tuple[str, bytes | None]] | Headers
) -> None:
    producer = Producer({"bootstrap.servers": shop.kafka, "log_level": 3})
    producer.produce("order.events", encode("order.events", PLACED.body), key, 0, headers=headers)
    producer.flush(30)
    others = history(3, 20)
    shop.writer.write_all(others, 10)
    await until(lambda: applied(shop.connection, others), "the others did not go on")
    assert await parked_keys(shop.connection) == []
    assert await shop.connection.fetchval("SELECT count(*) FROM foreign_record") == 1
    assert shop.projection.child.poll() is None


async def test_a_body_that_no_column_holds_parks_its_key(shop: Shop) -> None:
    odd, *later = order_life("odd", random.Random(11))
    placed = replace(odd, body=replace(odd.body, country="a\0b"))
    shop.writer.write([placed, *later])
    others = history(3, 20)
    shop.writer.write_all(others, 10)
    await until(lambda: applied(shop.connection, others), "the others did not go on")
    (waiting,) = await parked_keys(shop.connection, "orders")
    assert (waiting.key, waiting.kind, waiting.events) == ("odd", "failed", 1 + len(later))
    model = next(model for model in READ_MODELS if model.name == "orders")
    first, *_ = await show(shop.connection, model, "odd")
    assert first.body is not None
    assert (await retry(shop.connection, model, "odd")).left == 1 + len(later)
    assert (await skip(shop.connection, model, "odd", "cannot be stored")).left == len(later)
    assert shop.projection.child.poll() is None
