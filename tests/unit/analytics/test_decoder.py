"""The decoder of the log's values in Spark."""

import io
import struct
from typing import Any

import fastavro
import pytest

from analytics.decoder import UndecodableValue, read_event
from contracts.lock import load_lock
from contracts.order.events import Charge, Line, OrderPlaced

PLACED = {
    "order_id": "o-1",
    "customer_id": None,
    "country": "Norway",
    "currency": "GBP",
    "occurred_at": 1_300_000_000_000_001,
    "lines": [{"sku": "22423", "quantity": 2, "unit_price": 2_550_000}],
}


def framed(schema_id: int, record: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, load_lock().schema(schema_id), record)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


def test_both_versions_become_the_current_event() -> None:
    first, second = load_lock().ids(OrderPlaced.TYPE)
    lines = (Line("22423", 2, 2_550_000),)
    expected = OrderPlaced("o-1", "Norway", "GBP", 1_300_000_000_000_001, lines, gross=5_100_000)
    assert read_event(framed(first, PLACED), load_lock()) == expected
    newer = {
        **PLACED,
        "charges": [{"code": "POST", "amount": 18_000_000}],
        "gross": 23_100_000,
        "settle_by": 5,
    }
    event = read_event(framed(second, newer), load_lock())
    assert (event.lines, event.charges, event.settle_by) == (lines, (Charge("POST", 18_000_000),), 5)


@pytest.mark.parametrize("cut", [0, 3, 5, 12, -1])
def test_what_is_cut_short_is_undecodable(cut: int) -> None:
    value = framed(load_lock().ids(OrderPlaced.TYPE)[0], PLACED)
    with pytest.raises(UndecodableValue):
        read_event(value[:cut], load_lock())


def test_another_first_byte_is_undecodable() -> None:
    value = framed(load_lock().ids(OrderPlaced.TYPE)[0], PLACED)
    with pytest.raises(UndecodableValue, match="begins with 1"):
        read_event(b"\x01" + value[1:], load_lock())


def test_an_unknown_schema_is_undecodable() -> None:
    with pytest.raises(UndecodableValue):
        read_event(struct.pack(">bI", 0, 4_000_000) + b"abc", load_lock())
