"""What an order asks of stock, and what it makes of the answers."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.inventory.commands import IssueStock, ReceiveStock, ReleaseStock, ReserveStock, ReturnStock
from contracts.order.commands import ExpireOrder, RecordMovements, RecordReservations
from contracts.order.events import Movement, OrderEvent
from services.kernel.model.decider import fold
from services.kernel.model.process import Answered, Ask
from services.order.domain.decider import order_decider
from services.order.process import order_process
from tests.unit.order.histories import (
    AT,
    DUE,
    HISTORIES,
    LAMP,
    LATER,
    MUG,
    ORDER,
    done,
    moved,
    mug_reserved,
    mugs_returned,
    placed,
    rejected,
)

ASKED: dict[str, list[tuple[object, str]]] = {
    "placed": [(ReserveStock(MUG, ORDER, 6, AT), ""), (ReserveStock(LAMP, ORDER, 1, AT), "")],
    "partly reserved": [],
    "confirmed": [],
    "rejected": [(ReleaseStock(MUG, ORDER, AT), "")],
    "cancelled": [(ReleaseStock(MUG, ORDER, LATER), ""), (ReleaseStock(LAMP, ORDER, LATER), "")],
    "expired": [(ReleaseStock(MUG, ORDER, DUE), ""), (ReleaseStock(LAMP, ORDER, DUE), "")],
    "shipped": [(IssueStock(MUG, ORDER, LATER), ""), (IssueStock(LAMP, ORDER, LATER), "")],
    "partly returned": [(ReturnStock(MUG, ORDER, 1, 3, LATER + 1), "1")],
    "returned": [
        (ReturnStock(LAMP, ORDER, 2, 1, LATER + 2), "2"),
        (ReturnStock(MUG, ORDER, 2, 3, LATER + 2), "2"),
    ],
}


def pending(*history: OrderEvent) -> list[Ask]:
    order = fold(order_decider, history)
    found = list(order_process.pending(order))
    assert order_process.is_open(order) == bool(found)
    return found


def reaction(*history: OrderEvent) -> list[Ask]:
    return list(order_process.react(history[-1], fold(order_decider, history)))


@pytest.mark.parametrize("history", ASKED)
def test_what_each_event_asks_for(history: str) -> None:
    asks = reaction(*HISTORIES[history])
    assert [(ask.command, ask.tag) for ask in asks] == ASKED[history]
    assert all(ask.key == ask.command.sku for ask in asks)


def test_the_ids_stay_the_same_for_ever() -> None:
    assert [ask.id for ask in pending(placed)] == [
        "7c0e7651-a300-5a69-a558-97eaa4413966",
        "372038c9-ffa7-5855-96a6-5d0a402651f2",
    ]


def test_every_ask_has_its_own_id() -> None:
    asks = [ask for history in HISTORIES.values() if history for ask in reaction(*history)]
    about = {(type(ask.command), ask.key, ask.tag) for ask in asks}
    assert len({ask.id for ask in asks}) == len(about) == 9


def test_what_is_answered_is_no_longer_pending() -> None:
    assert pending() == []
    assert [ask.key for ask in pending(placed, mug_reserved)] == [LAMP]
    assert pending(placed, rejected, moved(AT, done("release", MUG))) == []
    shipped = (*HISTORIES["partly returned"], moved(LATER, done("issue", MUG)))
    assert [type(ask.command) for ask in pending(*shipped)] == [IssueStock, ReturnStock]
    assert pending(*shipped, moved(LATER, done("issue", LAMP), done("return", MUG, 1))) == []


def test_an_earlier_return_that_is_still_pending_is_not_asked_again_by_a_later_one() -> None:
    history = (*HISTORIES["shipped"], mugs_returned, replace(mugs_returned, return_number=2))
    assert [ask.tag for ask in reaction(*history)] == ["2"]
    assert [ask.tag for ask in pending(*history)] == ["", "", "1", "2"]


def test_answers_become_one_command_of_each_kind() -> None:
    answers = [
        Answered(ReserveStock.TYPE, MUG, "", True, ""),
        Answered(ReserveStock.TYPE, LAMP, "", False, "insufficient_stock"),
        Answered(ReleaseStock.TYPE, MUG, "", True, ""),
        Answered(IssueStock.TYPE, MUG, "", False, "not_reserved"),
        Answered(ReturnStock.TYPE, LAMP, "2", True, ""),
    ]
    assert order_process.record(ORDER, answers) == [
        RecordReservations(ORDER, (MUG,), (LAMP,)),
        RecordMovements(
            ORDER,
            (
                Movement("release", MUG, 0, True, ""),
                Movement("issue", MUG, 0, False, "not_reserved"),
                Movement("return", LAMP, 2, True, ""),
            ),
        ),
    ]
    assert order_process.record(ORDER, answers[:1]) == [RecordReservations(ORDER, (MUG,), ())]
    assert order_process.record(ORDER, answers[4:]) == [
        RecordMovements(ORDER, (Movement("return", LAMP, 2, True, ""),))
    ]


def test_a_failed_ask_is_not_answered() -> None:
    assert order_process.record(ORDER, [Answered(ReserveStock.TYPE, MUG, "", False, "command_failed")]) == []


def test_the_answer_to_a_question_that_orders_never_ask_is_an_error() -> None:
    with pytest.raises(ValueError, match="never asks"):
        order_process.record(ORDER, [Answered(ReceiveStock.TYPE, MUG, "", True, "")])


@pytest.mark.parametrize("history", HISTORIES)
def test_only_an_unsettled_order_has_a_deadline(history: str) -> None:
    expected = DUE if history in ("placed", "partly reserved") else None
    assert order_process.deadline(fold(order_decider, HISTORIES[history])) == expected
    assert order_process.expire(ORDER, DUE) == ExpireOrder(ORDER, DUE)


def test_what_is_no_event_and_no_state_is_a_programming_error() -> None:
    stranger: Any = object()
    with pytest.raises(AssertionError):
        order_process.react(stranger, order_decider.initial)
    with pytest.raises(AssertionError):
        order_process.pending(stranger)
    with pytest.raises(AssertionError):
        order_process.is_open(stranger)
