"""The commands of an order to inventory, and what follows from their outcomes."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.inventory.commands import IssueStock, ReceiveStock, ReleaseStock, ReserveStock, ReturnStock
from contracts.order.commands import ExpireOrder, RecordMovements, RecordReservations
from contracts.order.events import Movement, OrderEvent
from services.kernel.model.decider import fold
from services.kernel.model.process import OutgoingCommand, Reply
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

COMMANDS: dict[str, list[tuple[object, str]]] = {
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


def pending(*history: OrderEvent) -> list[OutgoingCommand]:
    order = fold(order_decider, history)
    commands = list(order_process.pending(order))
    assert order_process.is_open(order) == bool(commands)
    return commands


def reaction(*history: OrderEvent) -> list[OutgoingCommand]:
    return list(order_process.react(history[-1], fold(order_decider, history)))


@pytest.mark.parametrize("history", COMMANDS)
def test_each_event_sends_its_commands(history: str) -> None:
    commands = reaction(*HISTORIES[history])
    assert [(outgoing.command, outgoing.tag) for outgoing in commands] == COMMANDS[history]
    assert all(outgoing.key == outgoing.command.sku for outgoing in commands)


def test_the_ids_stay_the_same_for_ever() -> None:
    assert [outgoing.id for outgoing in pending(placed)] == [
        "7c0e7651-a300-5a69-a558-97eaa4413966",
        "372038c9-ffa7-5855-96a6-5d0a402651f2",
    ]


def test_every_command_has_its_own_id() -> None:
    commands = [outgoing for history in HISTORIES.values() if history for outgoing in reaction(*history)]
    about = {(type(outgoing.command), outgoing.key, outgoing.tag) for outgoing in commands}
    assert len({outgoing.id for outgoing in commands}) == len(about) == 9


def test_a_command_with_an_outcome_is_not_pending() -> None:
    assert pending() == []
    assert [outgoing.key for outgoing in pending(placed, mug_reserved)] == [LAMP]
    assert pending(placed, rejected, moved(AT, done("release", MUG))) == []
    shipped = (*HISTORIES["partly returned"], moved(LATER, done("issue", MUG)))
    assert [type(outgoing.command) for outgoing in pending(*shipped)] == [IssueStock, ReturnStock]
    assert pending(*shipped, moved(LATER, done("issue", LAMP), done("return", MUG, 1))) == []


def test_a_later_return_does_not_repeat_a_pending_one() -> None:
    history = (*HISTORIES["shipped"], mugs_returned, replace(mugs_returned, return_number=2))
    assert [outgoing.tag for outgoing in reaction(*history)] == ["2"]
    assert [outgoing.tag for outgoing in pending(*history)] == ["", "", "1", "2"]


def test_outcomes_become_one_command_of_each_kind() -> None:
    outcomes = [
        Reply(ReserveStock.TYPE, MUG, "", True, ""),
        Reply(ReserveStock.TYPE, LAMP, "", False, "insufficient_stock"),
        Reply(ReleaseStock.TYPE, MUG, "", True, ""),
        Reply(IssueStock.TYPE, MUG, "", False, "not_reserved"),
        Reply(ReturnStock.TYPE, LAMP, "2", True, ""),
    ]
    assert order_process.record(ORDER, outcomes) == [
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
    assert order_process.record(ORDER, outcomes[:1]) == [RecordReservations(ORDER, (MUG,), ())]
    assert order_process.record(ORDER, outcomes[4:]) == [
        RecordMovements(ORDER, (Movement("return", LAMP, 2, True, ""),))
    ]


def test_a_failed_command_stays_pending() -> None:
    assert order_process.record(ORDER, [Reply(ReserveStock.TYPE, MUG, "", False, "command_failed")]) == []


def test_the_outcome_of_a_foreign_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="never asks"):
        order_process.record(ORDER, [Reply(ReceiveStock.TYPE, MUG, "", True, "")])


@pytest.mark.parametrize("history", HISTORIES)
def test_only_a_placed_order_has_a_deadline(history: str) -> None:
    expected = DUE if history in ("placed", "partly reserved") else None
    assert order_process.deadline(fold(order_decider, HISTORIES[history])) == expected
    assert order_process.expire(ORDER, DUE) == ExpireOrder(ORDER, DUE)


def test_unknown_events_and_states_are_programming_errors() -> None:
    stranger: Any = object()
    with pytest.raises(AssertionError):
        order_process.react(stranger, order_decider.initial)
    with pytest.raises(AssertionError):
        order_process.pending(stranger)
    with pytest.raises(AssertionError):
        order_process.is_open(stranger)
