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
from services.order.domain.state import Confirmed, NotPlaced, Order, Placed, Shipped, units_by_sku
from services.order.process import order_process
from tests.unit.process.shop import Shop

SKUS, DUE = ("A", "B", "C"), 1_000
skus = st.sampled_from(SKUS)
lines = st.lists(st.builds(Line, skus, st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4)
FATES = ("once", "once", "once", "again", "lost")


class Conversations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shop = Shop()
        self.now = 0

    @initialize(units=st.tuples(*[st.integers(0, 12)] * len(SKUS)))
    def stock_the_shelves(self, units: tuple[int, ...]) -> None:
        for sku, quantity in zip(SKUS, units, strict=True):
            if quantity:
                self.shop.stock(sku, ReceiveStock(sku, quantity, "", 0))

    def _order(self, command: OrderCommand) -> None:
        self.now += 1
        self.shop.order(command)

    def _draw(self, data: st.DataObject, *kinds: type[Order]) -> str:
        """One of the orders, if possible of these kinds."""
        candidates = sorted(key for key, order in self.shop.orders.items() if isinstance(order, kinds))
        return data.draw(st.sampled_from(candidates or sorted(self.shop.orders)))

    @rule(sku=skus, units=st.integers(1, 5))
    def receive(self, sku: str, units: int) -> None:
        self.shop.stock(sku, ReceiveStock(sku, units, "", self.now))

    @rule(lines=lines)
    def place_order(self, lines: list[Line]) -> None:
        order_id = str(len(self.shop.orders))
        self._order(PlaceOrder(order_id, "France", "EUR", self.now, tuple(lines), (), None, DUE))

    @precondition(lambda self: self.shop.orders)
    @rule(data=st.data(), give_up=st.sampled_from(["cancel", "expire"]))
    def give_up(self, data: st.DataObject, give_up: str) -> None:
        order_id = self._draw(data, Placed)
        if give_up == "cancel":
            self._order(CancelOrder(order_id, "", self.now))
        else:
            self._order(ExpireOrder(order_id, DUE + self.now))

    @precondition(lambda self: self.shop.orders)
    @rule(data=st.data(), kind=st.sampled_from([Confirmed, Confirmed, Placed]))
    def ship_or_cancel(self, data: st.DataObject, kind: type[Order]) -> None:
        order_id = self._draw(data, kind)
        cancelled = data.draw(st.integers(0, 3)) == 0
        self._order(CancelOrder(order_id, "", 0) if cancelled else ShipOrder(order_id, self.now))

    @precondition(lambda self: any(isinstance(order, Shipped) for order in self.shop.orders.values()))
    @rule(data=st.data(), units=st.integers(1, 9))
    def take_back(self, data: st.DataObject, units: int) -> None:
        """Some units of some SKUs, or, when the customer has fewer, all of them."""
        order_id = self._draw(data, Shipped)
        order = self.shop.orders[order_id]
        assert isinstance(order, Shipped)
        left = {sku: min(units, n) for sku, n in units_by_sku(order.lines).items() if n}
        some = data.draw(st.sets(st.sampled_from(sorted(left)), min_size=1)) if left else {"A"}
        back = tuple(ReturnedLine(sku, left.get(sku, 1)) for sku in sorted(some))
        self._order(ReturnLines(order_id, back, "", self.now))

    @precondition(lambda self: self.shop.commands)
    @rule(data=st.data(), fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=4))
    def deliver_commands(self, data: st.DataObject, fates: list[str]) -> None:
        for fate in fates[: len(self.shop.commands)]:
            order_id, outgoing = _take(data, self.shop.commands, fate)
            if fate != "lost":
                self.shop.deliver(order_id, outgoing)

    @precondition(lambda self: self.shop.outcomes)
    @rule(data=st.data(), fate=st.sampled_from(FATES), together=st.integers(0, 3))
    def deliver_outcomes(self, data: st.DataObject, fate: str, together: int) -> None:
        """Outcomes of one order, some of which travel together."""
        order_id, first = _take(data, self.shop.outcomes, fate)
        if fate != "lost":
            more = [outcome for to, outcome in self.shop.outcomes if to == order_id]
            self.shop.record(order_id, [first, *more[:together]])

    @precondition(lambda self: self.shop.orders)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self.shop.retry(data.draw(st.sampled_from(sorted(self.shop.orders))))

    @precondition(lambda self: self.shop.orders)
    @rule()
    def everything_arrives_and_the_retry_window_passes(self) -> None:
        self.shop.drain()
        self.shop.assert_conversations_ended()
        for sku, stock in self.shop.stocks.items():
            self.shop.stocks[sku] = stock_decider.forget(stock, stock.version)
        self.shop.recorded.clear()

    @invariant()
    def stock_is_right(self) -> None:
        self.shop.assert_stock_is_right()

    @invariant()
    def commands_without_an_outcome_are_pending(self) -> None:
        """The state alone gives the same commands that its events gave."""
        for order_id, order in self.shop.orders.items():
            pending = {outgoing.id: outgoing for outgoing in order_process.pending(order)}
            assert pending.items() <= self.shop.pending[order_id].items()

    def teardown(self) -> None:
        self.shop.drain()
        self.shop.assert_stock_is_right()
        self.shop.assert_conversations_ended()


def _take(data: st.DataObject, queue: list[Any], fate: str) -> Any:
    """One of those under way, not always the first; if it is to come again, it stays."""
    index = data.draw(st.integers(0, len(queue) - 1))
    return queue[index] if fate == "again" else queue.pop(index)


TestConversations = Conversations.TestCase


def test_an_order_that_was_never_placed_waits_for_nothing() -> None:
    assert order_process.pending(NotPlaced()) == ()
