"""The shop in one process: orders, stock, and a log between them that may delay, repeat, reorder and lose.

Like the kernel, it remembers refusals by command id; accepted commands are recognised by the state. Losing is
harsher than the real log, which does not lose: asking again must mend even that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from contracts.inventory.commands import InventoryCommand
from contracts.inventory.events import (
    InventoryEvent,
    StockIssued,
    StockReleased,
    StockReserved,
    StockReturned,
)
from contracts.order.commands import OrderCommand
from contracts.order.events import OrderEvent
from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.kernel.model.decider import Refused
from services.kernel.model.map import content_of
from services.kernel.model.process import Answered, Ask
from services.order.domain.decider import order_decider
from services.order.domain.state import Cancelled, Confirmed, Expired, Order, Rejected, Shipped, units_by_sku
from services.order.process import order_process


@dataclass
class Shop:
    """`asks` and `outcomes` are under way, each with the order that it concerns."""

    orders: dict[str, Order] = field(default_factory=dict)
    stocks: dict[str, Stock] = field(default_factory=lambda: defaultdict(Stock))
    asks: list[tuple[str, Ask]] = field(default_factory=list)
    outcomes: list[tuple[str, Answered]] = field(default_factory=list)
    remembered: dict[str, Answered] = field(default_factory=dict)
    unanswered: dict[str, dict[str, Ask]] = field(default_factory=lambda: defaultdict(dict))
    events: list[InventoryEvent] = field(default_factory=list)

    def order(self, command: OrderCommand) -> bool:
        """Whether the command was accepted."""
        order_id = command.order_id
        before = self.orders.get(order_id, order_decider.initial)
        try:
            events = order_decider.decide(command, before)
        except Refused:
            return False
        assert len(events) <= 1
        for event in events:
            after = order_decider.evolve(before, event)
            self.orders[order_id] = after
            self._ask(order_id, event, after)
        return True

    def _ask(self, order_id: str, event: OrderEvent, order: Order) -> None:
        asks = order_process.react(event, order)
        assert not self.unanswered[order_id].keys() & {ask.id for ask in asks}
        self.asks += [(order_id, ask) for ask in asks]
        self.unanswered[order_id].update((ask.id, ask) for ask in asks)

    def ask_again(self, order_id: str) -> None:
        self.asks += [(order_id, ask) for ask in order_process.pending(self.orders[order_id])]

    def stock(self, sku: str, command: InventoryCommand) -> bool:
        """Whether the stock changed. Raises `Refused`."""
        events = stock_decider.decide(command, self.stocks[sku])
        assert len(events) <= 1
        for event in events:
            self.stocks[sku] = stock_decider.evolve(self.stocks[sku], event)
            self.events.append(event)
        return bool(events)

    def answer(self, order_id: str, ask: Ask) -> None:
        """Stock takes an ask and answers it."""
        answered = self.remembered.get(ask.id) or self._execute(ask)
        self.outcomes.append((order_id, answered))

    def _execute(self, ask: Ask) -> Answered:
        try:
            self.stock(ask.key, ask.command)
            code = ""
        except Refused as refusal:
            code = refusal.code
        answered = Answered(ask.command.TYPE, ask.key, ask.tag, not code, code)
        if code:
            self.remembered[ask.id] = answered
        return answered

    def record(self, order_id: str, answered: Sequence[Answered]) -> None:
        """An order takes outcomes."""
        for command in order_process.record(order_id, answered):
            assert self.order(command)

    def drain(self) -> None:
        """Until nothing is under way and nothing is unanswered; asks again where only that helps."""
        for _ in range(10):
            while self.asks or self.outcomes:
                while self.asks:
                    self.answer(*self.asks.pop())
                while self.outcomes:
                    order_id, answered = self.outcomes.pop()
                    self.record(order_id, [answered])
            for order_id in self.orders:
                self.ask_again(order_id)
            if not self.asks:
                return
        raise AssertionError("conversations that do not end")

    def assert_stock_is_right(self) -> None:
        """I7."""
        for stock in self.stocks.values():
            assert stock.on_hand == stock.received + stock.adjusted + stock.returned - stock.issued
            assert stock.reserved == sum(content_of(stock.reservations).values())
            assert stock.available >= 0

    def assert_conversations_ended(self) -> None:
        """I9: every order is settled, and each of its reservations ended as the order did, once."""
        reserved, released, issued, returned = self._movements()
        for order_id, order in self.orders.items():
            held = {sku: stock.reservations.get(order_id, 0) for sku, stock in self.stocks.items()}
            mine = {sku for (of, sku) in reserved if of == order_id}
            match order:
                case Confirmed(lines=lines):
                    assert {sku: units for sku, units in held.items() if units} == units_by_sku(lines)
                case Rejected() | Cancelled() | Expired():
                    assert not any(held.values())
                    assert all(released[order_id, sku] == reserved[order_id, sku] for sku in mine)
                    assert not any(issued[order_id, sku] for sku in mine)
                case Shipped(lines=lines):
                    assert not any(held.values())
                    for sku, left in units_by_sku(lines).items():
                        assert issued[order_id, sku] == reserved[order_id, sku]
                        assert issued[order_id, sku] - returned[order_id, sku] == left
                        assert not released[order_id, sku]
                case _:
                    raise AssertionError(f"{order_id} is not settled: {order}")

    def _movements(self) -> list[Counter[tuple[str, str]]]:
        """Units by order and SKU, of each kind; each reservation begins once and ends once."""
        units: dict[type, Counter[tuple[str, str]]] = defaultdict(Counter)
        seen: set[tuple[type, str, str, int]] = set()
        for event in self.events:
            if isinstance(event, StockReserved | StockReleased | StockIssued | StockReturned):
                key = (type(event), event.order_id, event.sku, getattr(event, "return_number", 0))
                assert key not in seen
                seen.add(key)
                units[type(event)][event.order_id, event.sku] += event.quantity
        return [units[kind] for kind in (StockReserved, StockReleased, StockIssued, StockReturned)]
