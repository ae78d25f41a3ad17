"""A late board shows fresh records and counts those it skipped; a read model cannot do that."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from contracts.order.events import Line, OrderPlaced
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Envelope, now_micros, read_headers, write_headers
from services.projection.engine.row_fold import fold
from services.projection.read_models import ORDERS
from tests.integration.patterns.fresh_only import FreshOnly, Price, PriceBoard
from tests.integration.patterns.seen import arrivals, records
from tests.integration.projection.shop_log import envelope, order_life

SECOND, HOUR = 1_000_000, 3_600_000_000
NOW = now_micros()


def placed(order: int, sku: str, price: int, at: int) -> Envelope[OrderPlaced]:
    lines = (Line(sku, 1, price),)
    # ordered long ago, recorded at `at`: business time must not decide
    body = OrderPlaced(f"o-{order}", "France", "EUR", NOW - 9 * HOUR, lines, gross=price)
    return envelope(f"o-{order}", 1, body, at=at)


def written(bootstrap: str, events: Sequence[Envelope[Any]]) -> list[Message]:
    """The events in a topic of two partitions, as a consumer gets them."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for event in events:
        headers: list[tuple[str, str | bytes | None]] = [*write_headers(event.metadata)]
        value = encode("order.events", event.body)
        producer.produce(topic, value, event.metadata.subject, headers=headers)
    assert producer.flush(30) == 0
    return records(bootstrap, topic)


def test_a_late_board_skips_what_is_stale_and_counts_it(sites: tuple[str, str]) -> None:
    """100 orders of an hour ago, while the board was not running, then 20 of the last seconds."""
    stale = [placed(n, f"sku-{n % 8}", 1_000_000, NOW - HOUR + n) for n in range(100)]
    fresh = [placed(100 + n, f"sku-{n % 4}", 2_000_000 + n, NOW - 10 * SECOND + n) for n in range(20)]
    log = written(sites[0], [*stale, *fresh])
    board = PriceBoard(seconds=30, clock=lambda: NOW)
    for record in log:
        board.see(record)
    assert board.fresh.skipped == 100
    # the newest price of each SKU from any partition; a SKU without a recent sale is not shown
    assert board.prices == {
        f"sku-{n % 4}": Price(2_000_000 + n, "EUR", NOW - 10 * SECOND + n) for n in range(16, 20)
    }
    patient = PriceBoard(seconds=7200, clock=lambda: NOW)
    for record in log:
        patient.see(record)
    assert (patient.fresh.skipped, len(patient.prices)) == (0, 8)


def test_a_read_model_that_skips_is_stopped(sites: tuple[str, str]) -> None:
    """A read model notices a skipped event at once: its key is parked."""
    first, *others = order_life("o-1", random.Random(1))
    late = replace(first, metadata=first.metadata._replace(recorded_at=NOW - HOUR))
    log = written(sites[0], [late, *others])
    assert fold(ORDERS, {}, arrivals(log)).rows["o-1"].version == len(log)
    fresh = FreshOnly(30, lambda: NOW)
    kept = [record for record in log if fresh.passes(read_headers(record.headers()).recorded_at)]
    assert fresh.skipped == 1
    folded = fold(ORDERS, {}, arrivals(kept))
    assert folded.rows == {}
    assert folded.parked[0][1].reason.endswith("follows version 0")
    kinds = [stop.kind for _, stop in folded.parked]
    assert kinds == ["forked", *["behind"] * (len(kept) - 1)]
