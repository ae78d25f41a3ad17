"""The projection on the real log: committed events arrive once, aborted ones never."""

from __future__ import annotations

import random
from io import BytesIO

from fastavro import schemaless_writer

from contracts.lock import load_lock
from services.kernel.record.codec import FRAME
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, differences, until
from tests.integration.projection.shop_log import history, order_life


async def test_rows_are_the_fold_of_what_was_committed(shop: Shop) -> None:
    events = history(1, 300)
    shop.writer.write_all(events, 10, spoil=0.2)
    await until(lambda: applied(shop.connection, events), "not all events were applied")
    assert await differences(shop.connection, events) == []
    assert shop.projection.stop() == 0


async def test_an_older_version_of_an_event_is_read_as_the_newest(shop: Shop) -> None:
    placed, *later = order_life("old-order", random.Random(5))
    lock = load_lock()
    first = lock.versions("order.events-daybook.order.OrderPlaced")[0]
    assert first.version == 1
    body = placed.body
    lines = [line.__dict__ for line in body.lines]
    old = {
        "order_id": body.order_id, "customer_id": "c-9", "country": body.country, "currency": body.currency,
        "occurred_at": body.occurred_at, "lines": lines,
    }  # fmt: skip
    out = BytesIO()
    out.write(FRAME.pack(0, first.id))
    schemaless_writer(out, lock.schema(first.id), old)
    shop.writer.write_raw("order.events", placed.metadata, out.getvalue())
    shop.writer.write(later)
    await until(lambda: applied(shop.connection, [placed, *later]), "not all events were applied")
    row = await shop.connection.fetchrow("SELECT * FROM orders.orders")
    assert (row["customer_id"], row["version"]) == ("c-9", len(later) + 1)
    assert row["gross"] == sum(line["quantity"] * line["unit_price"] for line in lines)
