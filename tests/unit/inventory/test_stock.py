"""The law of stock, sentence by sentence."""

from typing import Any

import pytest

from contracts.inventory.commands import (
    AdjustStock,
    InventoryCommand,
    IssueStock,
    ReceiveStock,
    ReleaseStock,
    ReserveStock,
    ReturnStock,
)
from contracts.inventory.events import (
    InventoryEvent,
    StockAdjusted,
    StockIssued,
    StockReceived,
    StockReleased,
    StockReserved,
    StockReturned,
)
from contracts.order.commands import JustifyReservation, PlaceOrder
from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.inventory.process import inventory_process
from services.kernel.model.map import Map
from services.kernel.model.process import Reply
from tests.unit.given import Spec

stock: Spec[InventoryCommand, Stock, InventoryEvent] = Spec(stock_decider)
SKU, ORDER, AT = "22423", "536365", 1_291_190_000_000_000

received = StockReceived(SKU, 10, "delivery 1", AT)
reserved = StockReserved(SKU, ORDER, 4, AT)
released = StockReleased(SKU, ORDER, 4, AT)
issued = StockIssued(SKU, ORDER, 4, AT)
returned = StockReturned(SKU, ORDER, 1, 3, AT)

receive = ReceiveStock(SKU, 10, "delivery 1", AT)
write_off = AdjustStock(SKU, -7, "broken", AT)
reserve = ReserveStock(SKU, ORDER, 4, AT)
release = ReleaseStock(SKU, ORDER, AT)
issue = IssueStock(SKU, ORDER, AT)
take_back = ReturnStock(SKU, ORDER, 1, 3, AT)

HISTORIES: dict[str, tuple[InventoryEvent, ...]] = {
    "unknown": (),
    "stocked": (received,),
    "held": (received, reserved),
    "released": (received, reserved, released),
    "released unheld": (received, StockReleased(SKU, ORDER, 0, AT)),
    "issued": (received, reserved, issued),
    "returned": (received, reserved, issued, returned),
}
nothing = StockReleased(SKU, ORDER, 0, AT)
wrote_off = StockAdjusted(SKU, -7, "broken", AT)
LAW: dict[str, tuple[InventoryEvent | str | None, ...]] = {
    # history: receive, write off 7, reserve 4, release, issue, take back 3; None: it is already so
    "unknown": (received, "below_reserved", "insufficient_stock", nothing, "not_reserved", returned),
    "stocked": (received, wrote_off, reserved, nothing, "not_reserved", returned),
    "held": (received, "below_reserved", None, released, issued, returned),
    "released": (received, wrote_off, "reservation_closed", None, "reservation_closed", returned),
    "released unheld": (received, wrote_off, "reservation_closed", None, "reservation_closed", returned),
    "issued": (received, "below_reserved", None, None, None, returned),
    "returned": (received, wrote_off, None, None, None, None),
}
COMMANDS: tuple[InventoryCommand, ...] = (receive, write_off, reserve, release, issue, take_back)


@pytest.mark.parametrize("history", HISTORIES)
def test_every_command_after_every_history(history: str) -> None:
    given = stock.given(*HISTORIES[history])
    for command, outcome in zip(COMMANDS, LAW[history], strict=True):
        if isinstance(outcome, str):
            assert given.refuses(command) == outcome
        else:
            assert given.when(command) == ([outcome] if outcome else [])


def test_the_state_counts_units_and_versions() -> None:
    assert stock.given(received, wrote_off, StockReserved(SKU, "1", 1, AT)).state == Stock(
        version=3, on_hand=3, reserved=1, received=10, adjusted=-7, reservations=Map({"1": 1})
    )
    assert stock.given(received, reserved, issued, returned).state == Stock(
        version=4,
        on_hand=9,
        received=10,
        issued=4,
        returned=3,
        closed=Map({f"issue/{ORDER}": 3, f"return.1/{ORDER}": 4}),
    )


def test_all_available_units_can_be_reserved_and_no_more() -> None:
    given = stock.given(received, reserved)
    assert given.when(ReserveStock(SKU, "2", 6, AT)) == [StockReserved(SKU, "2", 6, AT)]
    assert given.refuses(ReserveStock(SKU, "2", 7, AT)) == "insufficient_stock"


def test_reserved_units_cannot_be_written_off() -> None:
    given = stock.given(received, reserved)
    assert given.when(AdjustStock(SKU, -6, "broken", AT)) == [StockAdjusted(SKU, -6, "broken", AT)]
    assert given.refuses(AdjustStock(SKU, -7, "broken", AT)) == "below_reserved"


def test_an_order_reserves_one_quantity() -> None:
    assert stock.given(received, reserved).refuses(ReserveStock(SKU, ORDER, 5, AT)) == "reservation_differs"


def test_a_release_does_not_affect_other_orders() -> None:
    other = StockReserved(SKU, "2", 5, AT)
    assert stock.given(received, reserved, other, released).state.reservations == Map({"2": 5})


def test_a_reservation_after_its_release_is_refused() -> None:
    given = stock.given(received).after(release)
    assert given.refuses(reserve) == "reservation_closed"
    assert given.state.reserved == 0


def test_each_return_of_an_order_counts_once() -> None:
    given = stock.given(received, reserved, issued, returned)
    assert given.when(ReturnStock(SKU, ORDER, 2, 1, AT)) == [StockReturned(SKU, ORDER, 2, 1, AT)]


def test_steps_of_orders_with_unusual_ids_are_distinct() -> None:
    given = stock.given(received).after(
        ReserveStock(SKU, "A", 1, AT), IssueStock(SKU, "A", AT), ReturnStock(SKU, "A", 1, 1, AT)
    )
    assert given.when(ReturnStock(SKU, "1/A", 1, 1, AT)) == [StockReturned(SKU, "1/A", 1, 1, AT)]
    assert given.when(ReserveStock(SKU, "return.1/A", 1, AT)) == [StockReserved(SKU, "return.1/A", 1, AT)]


@pytest.mark.parametrize("quantity", [0, -1])
def test_quantities_are_positive(quantity: int) -> None:
    for command in (
        ReceiveStock(SKU, quantity, "", AT),
        ReserveStock(SKU, ORDER, quantity, AT),
        ReturnStock(SKU, ORDER, 1, quantity, AT),
    ):
        assert stock.given(received).refuses(command) == "bad_quantity"


def test_an_adjustment_of_zero_is_refused() -> None:
    assert stock.given(received).refuses(AdjustStock(SKU, 0, "", AT)) == "zero_adjustment"


def test_status_is_one_word() -> None:
    assert (stock.given().status, stock.given(received).status) == ("unknown", "stocked")


def test_only_closed_steps_up_to_a_version_are_forgotten() -> None:
    before = stock.given(received, reserved, issued, StockReserved(SKU, "2", 1, AT), returned).state
    after = stock_decider.forget(before, 3)
    assert after.closed == Map({f"return.1/{ORDER}": 5})
    assert (after.version, after.on_hand, after.reservations) == (5, 9, Map({"2": 1}))
    assert stock_decider.forget(before, 2) is before


def test_stock_sends_no_commands_in_normal_operation() -> None:
    state = stock.given(received, reserved).state
    assert not inventory_process.is_open(Stock())
    assert list(inventory_process.react(reserved, state)) == list(inventory_process.pending(state)) == []
    assert inventory_process.deadline(state) is None
    assert list(inventory_process.claims(state)) == []
    with pytest.raises(ValueError, match="never asks for"):
        inventory_process.record(SKU, [Reply(PlaceOrder.TYPE, ORDER, "", True, "")])
    with pytest.raises(ValueError, match="does not expire"):
        inventory_process.expire(SKU, AT)


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("order_not_found", ReleaseStock(SKU, ORDER, AT, order_lost=True)),
        ("already_cancelled", release),
        ("already_rejected", release),
        ("already_expired", release),
        ("sku_not_in_order", release),
        ("already_shipped", issue),
        ("command_failed", None),
        ("", None),
    ],
)
def test_after_a_failover_each_reservation_is_justified_by_its_order(code: str, ends: object) -> None:
    state = stock.given(received, reserved).state
    (question,) = inventory_process.again(reserved, state, 2)
    assert (question.key, question.command) == (ORDER, JustifyReservation(ORDER, SKU, AT))
    reply = Reply(JustifyReservation.TYPE, ORDER, question.tag, not code, code)
    assert list(inventory_process.record(SKU, [reply])) == ([ends] if ends else [])


def test_each_takeover_sends_new_commands_for_open_reservations_only() -> None:
    state = stock.given(received, reserved).state
    (second,), (third,) = (inventory_process.again(reserved, state, epoch) for epoch in (2, 3))
    assert second.id != third.id
    assert list(inventory_process.again(received, state, 2)) == []
    assert list(inventory_process.again(reserved, stock.given(received, reserved, issued).state, 2)) == []


def test_the_reservation_of_a_lost_order_ends_and_may_be_repeated() -> None:
    lost = ReleaseStock(SKU, ORDER, AT, order_lost=True)
    gone = StockReleased(SKU, ORDER, 4, AT, order_lost=True)
    assert stock.given(received, reserved).when(lost) == [gone]
    assert stock.given(received).when(lost) == []
    assert stock.given(received, reserved, gone).when(reserve) == [reserved]


def test_unknown_commands_and_events_are_programming_errors() -> None:
    stranger: Any = object()
    with pytest.raises(AssertionError):
        stock.given().when(stranger)
    with pytest.raises(AssertionError):
        stock.given(stranger)
