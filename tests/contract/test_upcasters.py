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


def test_an_early_order_costs_the_sum_of_its_lines() -> None:
    later = order_placed_1_to_2(EARLY)
    assert later == {**EARLY, "gross": 15_300_002, "charges": [], "settle_by": None}


def test_upcasting_leaves_the_old_record_alone() -> None:
    before = repr(EARLY)
    order_placed_1_to_2(EARLY)
    assert repr(EARLY) == before


def test_the_newest_version_is_left_as_it_is() -> None:
    lock = load_lock()
    newest = {**EARLY, "gross": 7, "charges": [], "settle_by": 3}
    assert upcast(newest, lock.ids("daybook.order.OrderPlaced")[-1], lock) == newest


class Chain(Lock):
    """Three versions without a step of their own: defaults do it."""

    def __init__(self) -> None:
        super().__init__(Entry("t-T", version, version, "T", "", "") for version in (1, 2, 3))

    def schema(self, schema_id: int) -> dict[str, Any]:
        fields = {
            1: [{"name": "a"}],
            2: [{"name": "a"}, {"name": "b", "default": 2}],
            3: [{"name": "b", "default": 0}, {"name": "c", "default": 3}],
        }
        return {"fields": fields[schema_id]}


def test_without_a_step_the_defaults_of_each_version_are_the_step() -> None:
    assert upcast({"a": 1}, 1, Chain()) == {"b": 2, "c": 3}
    assert upcast({"a": 1, "b": 9}, 2, Chain()) == {"b": 9, "c": 3}
