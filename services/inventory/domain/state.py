"""The stock of one SKU, and its next state after each event. Plain types only: a snapshot is `Stock` in MessagePack."""

from dataclasses import dataclass, field, replace
from typing import assert_never

from contracts.inventory.events import (
    InventoryEvent,
    StockAdjusted,
    StockIssued,
    StockReceived,
    StockReleased,
    StockReserved,
    StockReturned,
)
from services.kernel.model.map import Map


@dataclass(frozen=True, slots=True)
class Stock:
    """One SKU; all quantities are units.

    `on_hand == received + adjusted + returned - issued` (I7) and `reserved == sum(reservations.values())`.
    `reservations`: units by order. `closed`: the ended steps of orders (see `closed_key`) with the version of
    this stock at which each ended, so that late and repeated commands are recognised.
    """

    version: int = 0
    on_hand: int = 0
    reserved: int = 0
    received: int = 0
    adjusted: int = 0
    returned: int = 0
    issued: int = 0
    reservations: Map = field(default_factory=Map)
    closed: Map = field(default_factory=Map)

    @property
    def available(self) -> int:
        """Units that the next order can reserve; never below zero."""
        return self.on_hand - self.reserved


def evolve(stock: Stock, event: InventoryEvent) -> Stock:
    """Returns the stock after `event`."""
    version, on_hand = stock.version + 1, stock.on_hand
    match event:
        case StockReceived(quantity=units):
            return replace(stock, version=version, on_hand=on_hand + units, received=stock.received + units)
        case StockAdjusted(quantity=units):
            return replace(stock, version=version, on_hand=on_hand + units, adjusted=stock.adjusted + units)
        case StockReserved(order_id=order_id, quantity=units):
            return replace(
                stock,
                version=version,
                reserved=stock.reserved + units,
                reservations=stock.reservations.put(order_id, units),
            )
        case StockReleased(order_id=order_id, quantity=units, order_lost=lost):
            closed = stock.closed if lost else stock.closed.put(closed_key("release", order_id), version)
            return replace(
                stock,
                version=version,
                reserved=stock.reserved - units,
                reservations=stock.reservations.without(order_id),
                closed=closed,
            )
        case StockIssued(order_id=order_id, quantity=units):
            return replace(
                stock,
                version=version,
                on_hand=on_hand - units,
                reserved=stock.reserved - units,
                issued=stock.issued + units,
                reservations=stock.reservations.without(order_id),
                closed=stock.closed.put(closed_key("issue", order_id), version),
            )
        case StockReturned(order_id=order_id, return_number=number, quantity=units):
            return replace(
                stock,
                version=version,
                on_hand=on_hand + units,
                returned=stock.returned + units,
                closed=stock.closed.put(closed_key(return_step(number), order_id), version),
            )
        case _:
            assert_never(event)


def status(stock: Stock) -> str:
    """Returns `stocked`, or `unknown` for a SKU without events."""
    return "stocked" if stock.version else "unknown"


def closed_key(step: str, order_id: str) -> str:
    """Returns the name of an order's step in `Stock.closed`: `release`, `issue` or `return.<number>`. The step comes
    first, because an order id may contain any character."""
    return f"{step}/{order_id}"


def return_step(number: int) -> str:
    """Returns the step of an order's return; numbers start at 1."""
    return f"return.{number}"


def forget(stock: Stock, version: int) -> Stock:
    """Removes the closed steps up to `version`: their commands cannot arrive any more."""
    kept = stock.closed.above(version)
    return stock if kept is stock.closed else replace(stock, closed=kept)
