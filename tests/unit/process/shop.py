"""The shop in one process: orders, stock, and a log between them that may delay, repeat, reorder and lose.

Like the kernel, it records refusals by command id; accepted commands are recognised by the state. The real log does
not lose commands; retries must repair even that.
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
from services.kernel.model.process import OutgoingCommand, Reply
from services.order.domain.decider import order_decider
from services.order.domain.state import Cancelled, Confirmed, Expired, Order, Rejected, Shipped, units_by_sku
from services.order.process import order_process


@dataclass
class Shop:
    """`commands` and `outcomes` are under way, each with the order that it concerns."""

    orders: dict[str, Order] = field(default_factory=dict)
    stocks: dict[str, Stock] = field(default_factory=lambda: defaultdict(Stock))
    commands: list[tuple[str, OutgoingCommand]] = field(default_factory=list)
    outcomes: list[tuple[str, Reply]] = field(default_factory=list)
    recorded: dict[str, Reply] = field(default_factory=dict)
    pending: dict[str, dict[str, OutgoingCommand]] = field(default_factory=lambda: defaultdict(dict))
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
            self._send(order_id, event, after)
        return True

    def _send(self, order_id: str, event: OrderEvent, order: Order) -> None:
        commands = order_process.react(event, order)
        assert not self.pending[order_id].keys() & {outgoing.id for outgoing in commands}
        self.commands += [(order_id, outgoing) for outgoing in commands]
        self.pending[order_id].update((outgoing.id, outgoing) for outgoing in commands)

    def retry(self, order_id: str) -> None:
        self.commands += [(order_id, outgoing) for outgoing in order_process.pending(self.orders[order_id])]

    def stock(self, sku: str, command: InventoryCommand) -> bool:
        """Whether the stock changed. Raises `Refused`."""
        events = stock_decider.decide(command, self.stocks[sku])
        assert len(events) <= 1
        for event in events:
            self.stocks[sku] = stock_decider.evolve(self.stocks[sku], event)
            self.events.append(event)
        return bool(events)

    def deliver(self, order_id: str, outgoing: OutgoingCommand) -> None:
        """Inventory executes a command; its outcome is under way. A repeated command gets the recorded refusal."""
        outcome = self.recorded.get(outgoing.id) or self._execute(outgoing)
        self.outcomes.append((order_id, outcome))

    def _execute(self, outgoing: OutgoingCommand) -> Reply:
        try:
            self.stock(outgoing.key, outgoing.command)
            code = ""
        except Refused as refusal:
            code = refusal.code
        outcome = Reply(outgoing.command.TYPE, outgoing.key, outgoing.tag, not code, code)
        if code:
            self.recorded[outgoing.id] = outcome
        return outcome

    def record(self, order_id: str, outcomes: Sequence[Reply]) -> None:
        """An order takes outcomes."""
        for command in order_process.record(order_id, outcomes):
            assert self.order(command)

    def drain(self) -> None:
        """Delivers until nothing is under way and no command is pending; retries pending commands."""
        for _ in range(10):
            while self.commands or self.outcomes:
                while self.commands:
                    self.deliver(*self.commands.pop())
                while self.outcomes:
                    order_id, outcome = self.outcomes.pop()
                    self.record(order_id, [outcome])
            for order_id in self.orders:
                self.retry(order_id)
            if not self.commands:
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
