"""Where outcomes go, and which input a command belongs to: the worker decides, not a header."""

from __future__ import annotations

import pytest

from contracts.inventory.commands import ReceiveStock, ReserveStock
from contracts.kernel.records import OutcomeBatch
from contracts.order.commands import PlaceOrder
from services.kernel.log.control import Phase
from services.kernel.record.envelope import Malformed, Metadata, ReplyAddress
from services.kernel.worker.addresses import Routing

INBOX, COMMANDS = "inventory.inbox", "inventory.commands"
PHASES: tuple[Phase, ...] = ("commands", "inbox", "closed")


def routing(phase: Phase) -> Routing:
    return Routing("inventory", phase, {}, 1)


def outcome_to(phase: Phase, topic: str, reply_to: ReplyAddress) -> str | None:
    about = Metadata("id", "type", "sku", "test", 1, "c", "c", 1, reply_to=reply_to)
    address = routing(phase).routed(topic, about).reply_to
    return None if address is None else str(address)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("named", ["inventory.outcomes", "order.outcomes", "order.inbox", "order.commands"])
def test_outcomes_for_an_api_go_to_the_outcomes_of_the_service(phase: Phase, named: str) -> None:
    assert outcome_to(phase, COMMANDS, ReplyAddress(named, 3, "", "")) == "inventory.outcomes:3::"


@pytest.mark.parametrize("named", ["order.inbox", "order.commands"])
def test_a_reply_goes_to_the_inbox_whatever_the_header_says(named: str) -> None:
    address = ReplyAddress(named, None, "7", "an-order")
    old, new = "order.commands::7:an-order", "order.inbox::7:an-order"
    assert [outcome_to(phase, COMMANDS, address) for phase in PHASES] == [old, new, None]
    assert [outcome_to(phase, INBOX, address) for phase in PHASES] == [old, new, new]


def test_a_command_is_written_to_its_input_once_workers_have_moved() -> None:
    reserve, place_order = ReserveStock.TYPE, PlaceOrder.TYPE
    assert [routing(phase).command_topic(reserve) for phase in PHASES] == [COMMANDS, INBOX, INBOX]
    assert {routing(phase).command_topic(place_order) for phase in PHASES} == {"order.commands"}
    reply_topics = [routing(phase).reply_topic() for phase in PHASES]
    assert reply_topics == [COMMANDS, INBOX, INBOX]


@pytest.mark.parametrize("phase", PHASES)
def test_only_what_belongs_to_an_input_is_executed_from_it(phase: Phase) -> None:
    receive, reserve = ReceiveStock("sku", 1, "delivery", 1), ReserveStock("sku", "o", 1, 1)
    ours = routing(phase)
    ours.require_input(COMMANDS, receive)
    for sent in (reserve, OutcomeBatch(())):
        ours.require_input(INBOX, sent)
    with pytest.raises(Malformed, match=r"belongs to inventory\.commands"):
        ours.require_input(INBOX, receive)
    for sent in (reserve, OutcomeBatch(())):
        if phase == "closed":
            with pytest.raises(Malformed, match=r"belongs to inventory\.inbox"):
                ours.require_input(COMMANDS, sent)
        else:
            ours.require_input(COMMANDS, sent)
