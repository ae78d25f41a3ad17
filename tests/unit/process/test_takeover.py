"""A failover cuts the mirrored logs at different points: every combination of cuts is taken over from.

The logs are those of a scripted shop in which every kind of conversation happens. After a takeover what is
held is backed by an order, what an order needs is held (I9), and stock adds up (I7); then people repeat what
was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from contracts.inventory.commands import InventoryCommand, ReceiveStock
from contracts.inventory.events import InventoryEvent, StockIssued, StockReturned
from contracts.order.commands import (
    CancelOrder,
    JustifyReservation,
    OrderCommand,
    PlaceOrder,
    ReturnedLine,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import Line, OrderEvent
from services.inventory.domain.decider import stock_decider
from services.inventory.process import inventory_process
from services.kernel.model.decider import Refused
from services.kernel.model.map import content_of
from services.kernel.model.process import Reply
from services.order.domain.decider import order_decider
from services.order.domain.state import Confirmed, Rejected, Shipped, units_by_sku
from services.order.process import order_process
from tests.unit.process.shop import Shop

EPOCH = 2


@dataclass
class Recording(Shop):
    """A shop that keeps both logs, and for each client's command where in its log it took effect."""

    order_log: list[tuple[str, OrderEvent]] = field(default_factory=list)
    stock_log: list[tuple[str, InventoryEvent]] = field(default_factory=list)

    def order(self, command: OrderCommand) -> bool:
        before = self.orders.get(command.order_id, order_decider.initial)
        try:
            events = order_decider.decide(command, before)
        except Refused:
            return False
        self.order_log += [(command.order_id, event) for event in events]
        return super().order(command)

    def stock(self, sku: str, command: InventoryCommand) -> bool:
        before = len(self.events)
        changed = super().stock(sku, command)
        self.stock_log += [(sku, event) for event in self.events[before:]]
        return changed


@dataclass
class Sent:
    """A client's command and the length of its log after it."""

    command: Any
    order_events: int
    stock_events: int


@dataclass
class Story:
    shop: Recording
    sent: list[Sent]
    refusals: list[tuple[str, Reply]]


@cache
def story() -> Story:
    """Two SKUs and five orders: shipped and returned, cancelled late, cancelled early, short, confirmed."""
    shop, sent = Recording(), []

    def client(command: Any) -> None:
        if isinstance(command, ReceiveStock):
            shop.stock(command.sku, command)
        else:
            assert shop.order(command)
        sent.append(Sent(command, len(shop.order_log), len(shop.stock_log)))

    def place_order(order_id: str, *lines: tuple[str, int]) -> None:
        order_lines = tuple(Line(sku, units, 1) for sku, units in lines)
        client(PlaceOrder(order_id, "France", "EUR", 1, order_lines, (), None, None))

    client(ReceiveStock("A", 20, "", 0))
    client(ReceiveStock("B", 20, "", 0))
    place_order("shipped", ("A", 3), ("B", 2))
    place_order("early", ("A", 1), ("B", 1))
    client(CancelOrder("early", "", 2))
    shop.drain()
    place_order("late", ("B", 4))
    place_order("short", ("A", 1), ("C", 1))
    shop.drain()
    client(ShipOrder("shipped", 3))
    client(CancelOrder("late", "", 3))
    place_order("kept", ("A", 2))
    shop.drain()
    client(ReturnLines("shipped", (ReturnedLine("A", 2),), "", 4))
    shop.drain()
    shop.assert_conversations_ended()
    return Story(shop, sent, list(shop.recorded.items()))


def site_after(orders: int, stocks: int, refusals: int) -> Recording:
    """The passive site: the first events of each log, and the first of the recorded refusals."""
    original, shop = story(), Recording()
    for order_id, event in original.shop.order_log[:orders]:
        state = shop.orders.get(order_id, order_decider.initial)
        shop.orders[order_id] = order_decider.evolve(state, event)
        shop.order_log.append((order_id, event))
    for sku, happened in original.shop.stock_log[:stocks]:
        shop.stocks[sku] = stock_decider.evolve(shop.stocks[sku], happened)
        shop.stock_log.append((sku, happened))
        shop.events.append(happened)
    shop.recorded.update(original.refusals[:refusals])
    return shop


def take_over(shop: Recording) -> None:
    """As services/kernel/worker/takeover.py does it: for events, then for claims, each command once; then questions."""
    commands: dict[str, tuple[str, Any]] = {}
    for order_id, event in list(shop.order_log):
        for outgoing in order_process.again(event, shop.orders[order_id], EPOCH):
            commands.setdefault(outgoing.id, (order_id, outgoing))
    for order_id, order in shop.orders.items():
        for outgoing in order_process.claims(order):
            commands.setdefault(outgoing.id, (order_id, outgoing))
    questions = [
        (sku, outgoing)
        for sku, event in shop.stock_log
        for outgoing in inventory_process.again(event, shop.stocks[sku], EPOCH)
    ]
    for order_id, outgoing in commands.values():
        shop.deliver(order_id, outgoing)
    outcomes, shop.outcomes = shop.outcomes, []
    for order_id, outcome in outcomes:
        shop.record(order_id, [outcome])
    for sku, outgoing in questions:
        question = outgoing.command
        try:
            order_decider.decide(question, shop.orders.get(question.order_id, order_decider.initial))
            code = ""
        except Refused as refusal:
            code = refusal.code
        reply = Reply(JustifyReservation.TYPE, question.order_id, outgoing.tag, not code, code)
        for command in inventory_process.record(sku, [reply]):
            shop.stock(sku, command)
    shop.drain()


def units(shop: Recording, kind: type[StockIssued] | type[StockReturned], order_id: str) -> Counter[str]:
    units_of_sku: Counter[str] = Counter()
    for sku, event in shop.stock_log:
        if isinstance(event, kind) and event.order_id == order_id:
            units_of_sku[sku] += event.quantity
    return units_of_sku


def assert_claims_and_holds_agree(shop: Recording) -> None:
    for sku, stock in shop.stocks.items():
        for order_id in content_of(stock.reservations):
            order = shop.orders.get(order_id)
            assert isinstance(order, Confirmed), f"{sku} holds units for {order_id}: {order}"
    for order_id, order in shop.orders.items():
        match order:
            case Confirmed(lines=lines):
                issued = units(shop, StockIssued, order_id)
                for sku, ordered in units_by_sku(lines).items():
                    assert ordered in (shop.stocks[sku].reservations.get(order_id), issued[sku])
            case Shipped():
                assert not any(order_id in stock.reservations for stock in shop.stocks.values())
            case _:
                assert not order_process.is_open(order), f"{order_id} is open: {order}"


def repeat_what_was_lost(shop: Recording, orders: int, stocks: int) -> None:
    """Clients repeat, in their order, the commands whose events did not cross."""
    for sent in story().sent:
        if isinstance(sent.command, ReceiveStock):
            if sent.stock_events > stocks:
                shop.stock(sent.command.sku, sent.command)
        elif sent.order_events > orders:
            shop.order(sent.command)
            shop.drain()


def cuts(length: Callable[[Story], int]) -> range:
    return range(length(story()) + 1)


@pytest.mark.parametrize("orders", cuts(lambda original: len(original.shop.order_log)))
def test_takeover_works_for_every_combination_of_mirrored_prefixes(orders: int) -> None:
    for stocks in cuts(lambda original: len(original.shop.stock_log)):
        for refusals in cuts(lambda original: len(original.refusals)):
            shop = site_after(orders, stocks, refusals)
            take_over(shop)
            shop.assert_stock_is_right()
            assert_claims_and_holds_agree(shop)
            repeat_what_was_lost(shop, orders, stocks)
            shop.assert_stock_is_right()
            assert_claims_and_holds_agree(shop)
            take_over(shop)  # again changes nothing
            assert_claims_and_holds_agree(shop)


@pytest.mark.parametrize("stocks", cuts(lambda original: len(original.shop.stock_log))[2:])
def test_repeated_commands_restore_the_original_orders(stocks: int) -> None:
    """Exceptions are steps that a cut between the logs of orders and stock has undone: they are compensated."""
    for orders in cuts(lambda original: len(original.shop.order_log)):
        shop = site_after(orders, stocks, 0)
        take_over(shop)
        repeat_what_was_lost(shop, orders, stocks)
        assert isinstance(shop.orders["short"], Rejected)
        shipped = shop.orders["shipped"]
        assert isinstance(shipped, Shipped)
        left = units_by_sku(shipped.lines)
        out, back = units(shop, StockIssued, "shipped"), units(shop, StockReturned, "shipped")
        assert {sku: out[sku] - back[sku] for sku in left} == left
        assert isinstance(shop.orders["kept"], Confirmed)
