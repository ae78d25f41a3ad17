"""The law of orders as a table: every command in every state."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.order.commands import OrderCommand
from contracts.order.events import OrderEvent, RefundedLine, ReservationsRecorded
from tests.unit.order.histories import (
    AT,
    DUE,
    HISTORIES,
    LAMP,
    LATER,
    MUG,
    ORDER,
    UNIT,
    cancel,
    cancelled,
    confirmed,
    done,
    expire,
    expired,
    lamp_reserved,
    lamp_short,
    moved,
    movements,
    mugs_returned,
    order,
    place,
    placed,
    rejected,
    return_mugs,
    ship,
    shipped,
)

release_done = movements(done("release", MUG))
issue_done = movements(done("issue", MUG))
mug_released, mug_issued = done("release", MUG), done("issue", MUG)
not_complete = replace(
    mugs_returned, return_number=2, lines=(RefundedLine(MUG, 3, 6 * UNIT),), refund=6 * UNIT
)
COMMANDS: tuple[OrderCommand, ...] = (
    place,
    lamp_reserved,
    lamp_short,
    cancel,
    expire,
    ship,
    return_mugs,
    release_done,
    issue_done,
)
LAW: dict[str, tuple[OrderEvent | str | None, ...]] = {
    # history: place, lamp reserved, lamp short, cancel, expire, ship, return mugs, mugs released, mugs issued
    # None: it is already so
    "unknown": (placed, *["order_not_found"] * 8),
    "placed": (
        "order_exists",
        ReservationsRecorded(ORDER, AT, (LAMP,)),
        rejected,
        replace(cancelled, confirmed=False),
        expired,
        "not_confirmed",
        "not_shipped",
        None,
        None,
    ),
    "partly reserved": (
        "order_exists",
        confirmed,
        rejected,
        replace(cancelled, confirmed=False),
        expired,
        "not_confirmed",
        "not_shipped",
        None,
        None,
    ),
    "confirmed": (
        "order_exists",
        None,
        replace(cancelled, occurred_at=AT, reason="its hold on stock was lost in a failover"),
        cancelled,
        "already_settled",
        shipped,
        "not_shipped",
        None,
        None,
    ),
    "rejected": (
        "order_exists",
        None,
        None,
        "already_rejected",
        "already_settled",
        "already_rejected",
        "not_shipped",
        moved(AT, mug_released),
        None,
    ),
    "cancelled": (
        "order_exists",
        None,
        None,
        None,
        "already_settled",
        "already_cancelled",
        "not_shipped",
        moved(LATER, mug_released),
        None,
    ),
    "expired": (
        "order_exists",
        None,
        None,
        "already_expired",
        None,
        "already_expired",
        "not_shipped",
        moved(DUE, mug_released),
        None,
    ),
    "shipped": (
        "order_exists",
        None,
        None,
        "already_shipped",
        "already_settled",
        None,
        mugs_returned,
        None,
        moved(LATER, mug_issued),
    ),
    "partly returned": (
        "order_exists",
        None,
        None,
        "already_shipped",
        "already_settled",
        None,
        not_complete,
        None,
        moved(LATER, mug_issued),
    ),
    "returned": (
        "order_exists",
        None,
        None,
        "already_shipped",
        "already_settled",
        None,
        "nothing_to_return",
        None,
        moved(LATER, mug_issued),
    ),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_every_command_after_every_history(history: str) -> None:
    given = order.given(*HISTORIES[history])
    for command, outcome in zip(COMMANDS, LAW[history], strict=True):
        if isinstance(outcome, str):
            assert given.refuses(command) == outcome
        else:
            assert given.when(command) == ([outcome] if outcome else [])


@pytest.mark.parametrize("history", HISTORIES)
def test_status_is_one_word(history: str) -> None:
    word = {"partly reserved": "placed", "partly returned": "partly_returned"}.get(history, history)
    assert order.given(*HISTORIES[history]).status == word


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_commands_and_states_are_programming_errors(command: OrderCommand) -> None:
    stranger: Any = object()
    with pytest.raises(AssertionError):
        order.given().when(stranger)
    if command is not place:
        with pytest.raises(AssertionError):
            order.decider.decide(command, stranger)
