"""The saga as a model: whatever the log delays, repeats, reorders or loses, every conversation ends, once."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contracts.inventory.commands import ReceiveStock
from contracts.order.commands import (
    CancelOrder,
    ExpireOrder,
    OrderCommand,
    PlaceOrder,
    ReturnedLine,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import Line
from services.inventory.domain.decider import stock_decider
from services.order.domain.state import NotPlaced, Shipped, units_by_sku
from services.order.process import order_process
from tests.unit.process.shop import Shop

SKUS, ORDERS, DUE = ("A", "B", "C"), ("1", "2", "3"), 1_000
skus, orders = st.sampled_from(SKUS), st.sampled_from(ORDERS)
lines = st.lists(st.builds(Line, skus, st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4)


class Conversations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shop = Shop()
        self.now = 0

    @initialize(units=st.tuples(*[st.integers(0, 9)] * len(SKUS)))
    def stock_the_shelves(self, units: tuple[int, ...]) -> None:
        for sku, quantity in zip(SKUS, units, strict=True):
            if quantity:
                self.shop.stock(sku, ReceiveStock(sku, quantity, "", 0))

    def _order(self, command: OrderCommand) -> None:
        self.now += 1
        self.shop.order(command)

    @rule(sku=skus, units=st.integers(1, 5))
    def receive(self, sku: str, units: int) -> None:
        self.shop.stock(sku, ReceiveStock(sku, units, "", self.now))

    @rule(order_id=orders, lines=lines)
    def place(self, order_id: str, lines: list[Line]) -> None:
        self._order(PlaceOrder(order_id, "France", "EUR", self.now, tuple(lines), (), None, DUE))

    @rule(order_id=orders)
    def cancel(self, order_id: str) -> None:
        self._order(CancelOrder(order_id, "", self.now))

    @rule(order_id=orders)
    def expire(self, order_id: str) -> None:
        self._order(ExpireOrder(order_id, DUE + self.now))

    @rule(order_id=orders)
    def ship(self, order_id: str) -> None:
        self._order(ShipOrder(order_id, self.now))

    @rule(order_id=orders, sku=skus, units=st.integers(1, 4))
    def take_back(self, order_id: str, sku: str, units: int) -> None:
        self._order(ReturnLines(order_id, (ReturnedLine(sku, units),), "", self.now))

    @precondition(lambda self: any(isinstance(order, Shipped) for order in self.shop.orders.values()))
    @rule(data=st.data())
    def take_all_back(self, data: st.DataObject) -> None:
        shipped = {key: order for key, order in self.shop.orders.items() if isinstance(order, Shipped)}
        order_id = data.draw(st.sampled_from(sorted(shipped)))
        left = [ReturnedLine(sku, n) for sku, n in units_by_sku(shipped[order_id].lines).items() if n]
        self._order(ReturnLines(order_id, tuple(left), "", self.now))

    @precondition(lambda self: self.shop.asks)
    @rule(data=st.data(), again=st.booleans())
    def deliver_an_ask(self, data: st.DataObject, again: bool) -> None:
        self.shop.answer(*_take(data, self.shop.asks, again))

    @precondition(lambda self: self.shop.outcomes)
    @rule(data=st.data(), again=st.booleans())
    def deliver_outcomes(self, data: st.DataObject, again: bool) -> None:
        """Some outcomes of one order, which travel together."""
        order_id, first = _take(data, self.shop.outcomes, again)
        more = [answered for to, answered in self.shop.outcomes if to == order_id]
        rest = data.draw(st.lists(st.sampled_from(more), max_size=4)) if more else []
        self.shop.record(order_id, [first, *rest])

    @precondition(lambda self: self.shop.asks)
    @rule(data=st.data())
    def lose_an_ask(self, data: st.DataObject) -> None:
        _take(data, self.shop.asks, False)

    @precondition(lambda self: self.shop.outcomes)
    @rule(data=st.data())
    def lose_an_outcome(self, data: st.DataObject) -> None:
        _take(data, self.shop.outcomes, False)

    @precondition(lambda self: self.shop.orders)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        self.shop.ask_again(data.draw(st.sampled_from(sorted(self.shop.orders))))

    @rule()
    def everything_arrives_and_the_retry_window_passes(self) -> None:
        self.shop.drain()
        self.shop.assert_conversations_ended()
        for sku, stock in self.shop.stocks.items():
            self.shop.stocks[sku] = stock_decider.forget(stock, stock.version)
        self.shop.remembered.clear()

    @invariant()
    def stock_is_right(self) -> None:
        self.shop.assert_stock_is_right()

    @invariant()
    def what_was_asked_and_not_answered_is_pending(self) -> None:
        """The state alone gives the very asks that its events once gave."""
        for order_id, order in self.shop.orders.items():
            pending = {ask.id: ask for ask in order_process.pending(order)}
            assert pending.items() <= self.shop.unanswered[order_id].items()

    def teardown(self) -> None:
        self.shop.drain()
        self.shop.assert_stock_is_right()
        self.shop.assert_conversations_ended()


def _take(data: st.DataObject, queue: list[Any], again: bool) -> Any:
    """One of those under way, not always the first; with `again` it stays, to come once more."""
    index = data.draw(st.integers(0, len(queue) - 1))
    return queue[index] if again else queue.pop(index)


TestConversations = Conversations.TestCase


def test_an_order_that_was_never_placed_waits_for_nothing() -> None:
    assert order_process.pending(NotPlaced()) == ()
