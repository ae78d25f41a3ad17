"""The law of orders, sentence by sentence."""

from dataclasses import replace

import pytest

from contracts.order.commands import CancelOrder, RecordReservations, ReturnedLine, ReturnLines, ShipOrder
from contracts.order.events import Charge, Line, Movement, OrderReturned
from services.kernel.model.decider import Refused
from tests.unit.order.histories import (
    CHARGES,
    DUE,
    HISTORIES,
    LAMP,
    LATER,
    LINES,
    MUG,
    ORDER,
    UNIT,
    cancel,
    cancelled,
    confirmed,
    done,
    expire,
    moved,
    movements,
    mug_reserved,
    mugs_returned,
    order,
    place,
    placed,
    rejected,
    rest_returned,
    return_mugs,
    return_rest,
    ship,
    shipped,
)


def test_all_replies_in_one_command_confirm_with_one_event() -> None:
    both = RecordReservations(ORDER, (LAMP, MUG), ())
    assert order.given(placed).when(both) == [replace(confirmed, reserved=(MUG, LAMP))]


def test_one_short_sku_rejects_the_order_and_releases_the_others() -> None:
    assert order.given(placed).when(RecordReservations(ORDER, (MUG,), (LAMP,))) == [rejected]
    everything = RecordReservations(ORDER, (), (MUG, LAMP))
    assert order.given(placed).when(everything) == [replace(rejected, short=(MUG, LAMP), release=())]


def test_a_reply_counts_once() -> None:
    given = order.given(placed, mug_reserved)
    assert given.when(RecordReservations(ORDER, (MUG, MUG), ())) == []
    assert given.when(RecordReservations(ORDER, (), (MUG,))) == []
    assert given.when(RecordReservations(ORDER, (MUG, LAMP, LAMP), ())) == [confirmed]


def test_a_sku_reported_as_reserved_and_short_is_reserved() -> None:
    assert order.given(placed).when(RecordReservations(ORDER, (MUG,), (MUG,))) == [mug_reserved]


def test_replies_about_unknown_skus_change_nothing() -> None:
    assert order.given(placed).when(RecordReservations(ORDER, ("X",), ("Y",))) == []


def test_an_order_expires_only_after_its_deadline() -> None:
    assert order.given(placed).refuses(replace(expire, occurred_at=DUE - 1)) == "not_due"
    assert order.given(replace(placed, settle_by=None)).refuses(expire) == "not_due"


@pytest.mark.parametrize("other", [replace(ship, carrier="DHL"), replace(ship, reference=None)])
def test_an_order_ships_once(other: ShipOrder) -> None:
    assert order.given(placed, mug_reserved, confirmed, shipped).refuses(other) == "already_shipped"


def test_an_invalid_order_is_refused() -> None:
    def refusal(*lines: Line, charges: tuple[Charge, ...] = ()) -> str:
        return order.given().refuses(replace(place, lines=lines, charges=charges))

    assert refusal() == refusal(charges=CHARGES) == "empty_order"
    assert refusal(Line(MUG, 0, UNIT)) == refusal(Line(MUG, -1, UNIT)) == "bad_quantity"
    assert refusal(Line(MUG, 1, -1)) == "negative_price"
    assert refusal(Line(MUG, 2**31 - 1, 0), Line(MUG, 1, 0)) == "too_many_units"
    assert refusal(Line(MUG, 2, 2**62)) == "amount_too_large"
    assert refusal(Line(MUG, 1, 2**63 - 1), charges=(Charge("POST", 1),)) == "amount_too_large"
    assert refusal(Line(MUG, 2, 2**62), charges=(Charge("D", -1),)) == "amount_too_large"


def test_the_largest_order_and_a_free_order_are_accepted() -> None:
    for lines, gross in (((Line(MUG, 1, 2**63 - 1),), 2**63 - 1), ((Line(MUG, 2**31 - 1, 0),), 0)):
        free = replace(place, lines=lines, charges=())
        assert order.given().when(free) == [replace(placed, lines=lines, charges=(), gross=gross)]


def test_a_return_refunds_the_paid_prices_in_the_order_of_the_lines() -> None:
    given = order.given(*HISTORIES["shipped"])
    assert given.when(return_mugs) == [mugs_returned]  # 2 at 3.00 and 1 at 2.00
    assert given.after(return_mugs).when(return_rest) == [rest_returned]
    assert given.after(return_mugs, return_rest).status == "returned"


def test_a_repeated_sku_in_a_return_is_one_movement() -> None:
    twice = ReturnLines(ORDER, (ReturnedLine(MUG, 1), ReturnedLine(MUG, 2)), "too many", LATER + 1)
    assert order.given(*HISTORIES["shipped"]).when(twice) == [mugs_returned]


def test_only_units_that_the_customer_has_can_be_returned() -> None:
    given = order.given(*HISTORIES["partly returned"])

    def refusal(*lines: ReturnedLine) -> str:
        return given.refuses(ReturnLines(ORDER, lines, "", LATER))

    assert refusal() == "empty_return"
    assert refusal(ReturnedLine(MUG, 0)) == "bad_quantity"
    assert refusal(ReturnedLine(MUG, 4)) == "returned_too_much"
    assert refusal(ReturnedLine(MUG, 2), ReturnedLine(MUG, 2)) == "returned_too_much"
    assert refusal(ReturnedLine("POST", 1)) == "sku_not_in_order"


def test_a_return_of_all_at_once_is_complete() -> None:
    everything = ReturnLines(ORDER, (ReturnedLine(MUG, 6), ReturnedLine(LAMP, 1)), "", LATER)
    (returned,) = order.given(*HISTORIES["shipped"]).when(everything)
    assert isinstance(returned, OrderReturned)
    assert (returned.complete, returned.units, returned.refund) == (True, 7, 24 * UNIT)
    assert returned.refund == sum(line.quantity * line.unit_price for line in LINES)


def test_movements_end_once_and_the_first_reply_counts() -> None:
    given = order.given(*HISTORIES["partly returned"])
    refused = Movement("issue", MUG, 0, False, "not_reserved")
    both = movements(refused, done("issue", MUG), done("return", MUG, 1), done("return", MUG, 2))
    assert given.when(both) == [moved(LATER + 1, refused, done("return", MUG, 1))]
    assert given.after(both).when(both) == []
    assert given.after(both).when(movements(done("issue", LAMP))) == [moved(LATER, done("issue", LAMP))]


def test_an_impossible_history_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"OrderShipped cannot follow the state NotPlaced"):
        order.given(shipped)


OWN, FOREIGN = replace(cancel, customer_id="17850"), replace(cancel, customer_id="17851")


@pytest.mark.parametrize("history", HISTORIES)
def test_another_customers_order_is_refused_as_one_that_does_not_exist(history: str) -> None:
    unknown = order.given().refuses(FOREIGN)
    assert order.given(*HISTORIES[history]).refuses(FOREIGN) == unknown == "order_not_found"


@pytest.mark.parametrize("history", [name for name in HISTORIES if name != "unknown"])
def test_a_customer_cancels_an_order_of_their_own_as_anybody_may(history: str) -> None:
    own, any_order = (outcome_of(history, command) for command in (OWN, cancel))
    assert own == any_order != "order_not_found"


def test_an_order_of_no_customer_is_cancelled_only_by_who_may_cancel_any() -> None:
    nobodys = replace(placed, customer_id=None)
    assert order.given(nobodys).refuses(OWN) == "order_not_found"
    assert order.given(nobodys).when(cancel) == [replace(cancelled, confirmed=False)]


def outcome_of(history: str, command: CancelOrder) -> object:
    given = order.given(*HISTORIES[history])
    try:
        return given.when(command)
    except Refused as refusal:
        return refusal.code
