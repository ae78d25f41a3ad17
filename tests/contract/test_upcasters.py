"""One step at a time, until the newest shape."""

from typing import Any

from contracts.lock import Entry, Lock, load_lock
from contracts.upcasters import order_placed_1_to_2, upcast

EARLY: dict[str, Any] = {
    "order_id": "536365",
    "customer_id": None,
    "country": "France",
    "currency": "GBP",
    "occurred_at": 1,
    "lines": [
        {"sku": "A", "quantity": 6, "unit_price": 2_550_000},
        {"sku": "A", "quantity": 2, "unit_price": 1},
    ],
}


def test_an_order_of_version_1_gets_the_sum_of_its_lines_as_gross() -> None:
    later = order_placed_1_to_2(EARLY)
    assert later == {**EARLY, "gross": 15_300_002, "charges": [], "settle_by": None}


def test_upcasting_does_not_change_the_old_record() -> None:
    before = repr(EARLY)
    order_placed_1_to_2(EARLY)
    assert repr(EARLY) == before


def test_the_newest_version_is_returned_unchanged() -> None:
    lock = load_lock()
    newest = {**EARLY, "gross": 7, "charges": [], "settle_by": 3}
    assert upcast(newest, lock.ids("daybook.order.OrderPlaced")[-1], lock) == newest


class Chain(Lock):
    """Three versions without a step of their own: defaults do it."""

    def __init__(self) -> None:
        super().__init__(Entry("t-T", version, version, "T", "", "") for version in (1, 2, 3))

    def schema(self, schema_id: int) -> dict[str, Any]:
        fields = {
            1: [{"name": "a", "type": "long"}],
            2: [{"name": "a", "type": "long"}, {"name": "b", "type": "long", "default": 2}],
            3: [{"name": "b", "type": "long", "default": 0}, {"name": "c", "type": "long", "default": 3}],
        }
        return {"fields": fields[schema_id]}


def test_a_version_without_a_step_gets_the_defaults() -> None:
    assert upcast({"a": 1}, 1, Chain()) == {"b": 2, "c": 3}
    assert upcast({"a": 1, "b": 9}, 2, Chain()) == {"b": 9, "c": 3}
