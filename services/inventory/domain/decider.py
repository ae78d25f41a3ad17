"""The rules of the stock of one SKU.

Orders send commands to stock: reserve, then release or issue, then perhaps returns. A command may arrive late or
twice, so each is idempotent: a command that is already done yields no event, and an ended step stays closed
(`Stock.closed`) until the kernel removes it after the retry window.
"""

from collections.abc import Sequence
from enum import Enum
from typing import assert_never

from contracts.inventory.commands import (
    AdjustStock,
    InventoryCommand,
    IssueStock,
    ReceiveStock,
    ReleaseStock,
    ReserveStock,
    ReturnStock,
)
from contracts.inventory.events import (
    InventoryEvent,
    StockAdjusted,
    StockIssued,
    StockReceived,
    StockReleased,
    StockReserved,
    StockReturned,
)
from services.inventory.domain.state import Stock, closed_key, evolve, forget, return_step, status
from services.kernel.model.decider import Decider, Refused


class StockRefusal(Enum):
    """One member per code; the code is the name in lower case, the value is the reason."""

    BAD_QUANTITY = "a quantity is at least 1"
    ZERO_ADJUSTMENT = "an adjustment of 0 changes nothing"
    BELOW_RESERVED = "the stock would fall below what is reserved for orders"
    INSUFFICIENT_STOCK = "fewer units are available than requested"
    RESERVATION_CLOSED = "the order's reservation was released before"
    RESERVATION_DIFFERS = "the order has reserved another quantity"
    NOT_RESERVED = "nothing is reserved for the order"

    def refused(self, detail: str = "") -> Refused:
        """Returns the refusal to raise; `detail` is added to the reason."""
        return Refused(self.name.lower(), f"{self.value} ({detail})" if detail else self.value)


def decide(command: InventoryCommand, stock: Stock) -> Sequence[InventoryEvent]:
    """Returns at most one event. Raises `Refused`."""
    match command:
        case ReceiveStock():
            return receive(command)
        case AdjustStock():
            return adjust(command, stock)
        case ReserveStock():
            return reserve(command, stock)
        case ReleaseStock():
            return release(command, stock)
        case IssueStock():
            return issue(command, stock)
        case ReturnStock():
            return take_back(command, stock)
        case _:
            assert_never(command)


def receive(command: ReceiveStock) -> Sequence[InventoryEvent]:
    _at_least_one(command.quantity)
    return [StockReceived(command.sku, command.quantity, command.reference, command.occurred_at)]


def adjust(command: AdjustStock, stock: Stock) -> Sequence[InventoryEvent]:
    if command.quantity == 0:
        raise StockRefusal.ZERO_ADJUSTMENT.refused()
    if stock.available + command.quantity < 0:
        raise StockRefusal.BELOW_RESERVED.refused(f"on hand {stock.on_hand}, reserved {stock.reserved}")
    return [StockAdjusted(command.sku, command.quantity, command.reason, command.occurred_at)]


def reserve(command: ReserveStock, stock: Stock) -> Sequence[InventoryEvent]:
    """After an issue it changes nothing: the order had its units."""
    _at_least_one(command.quantity)
    if _issued(command.order_id, stock):
        return []
    if _released(command.order_id, stock):
        raise StockRefusal.RESERVATION_CLOSED.refused()
    reserved = stock.reservations.get(command.order_id)
    if reserved == command.quantity:
        return []
    if reserved is not None:
        raise StockRefusal.RESERVATION_DIFFERS.refused(f"reserved {reserved}, requested {command.quantity}")
    if command.quantity > stock.available:
        raise StockRefusal.INSUFFICIENT_STOCK.refused(
            f"available {stock.available}, requested {command.quantity}"
        )
    return [StockReserved(command.sku, command.order_id, command.quantity, command.occurred_at)]


def release(command: ReleaseStock, stock: Stock) -> Sequence[InventoryEvent]:
    """A release may overtake its reservation: then the event has 0 units, and still closes the reservation.

    After an issue it changes nothing. If the order was lost in a failover, the reservation ends but nothing is
    closed: the order may be placed again under its id.
    """
    if _released(command.order_id, stock) or _issued(command.order_id, stock):
        return []
    reserved = stock.reservations.get(command.order_id, 0)
    if command.order_lost and not reserved:
        return []
    return [StockReleased(command.sku, command.order_id, reserved, command.occurred_at, command.order_lost)]


def issue(command: IssueStock, stock: Stock) -> Sequence[InventoryEvent]:
    """Refused after a release: the units were not issued."""
    if _issued(command.order_id, stock):
        return []
    if _released(command.order_id, stock):
        raise StockRefusal.RESERVATION_CLOSED.refused()
    reserved = stock.reservations.get(command.order_id)
    if reserved is None:
        raise StockRefusal.NOT_RESERVED.refused()
    return [StockIssued(command.sku, command.order_id, reserved, command.occurred_at)]


def take_back(command: ReturnStock, stock: Stock) -> Sequence[InventoryEvent]:
    """Does not limit the quantity: the order knows what was shipped."""
    _at_least_one(command.quantity)
    if closed_key(return_step(command.return_number), command.order_id) in stock.closed:
        return []
    return [
        StockReturned(
            command.sku, command.order_id, command.return_number, command.quantity, command.occurred_at
        )
    ]


def _released(order_id: str, stock: Stock) -> bool:
    return closed_key("release", order_id) in stock.closed


def _issued(order_id: str, stock: Stock) -> bool:
    return closed_key("issue", order_id) in stock.closed


def _at_least_one(quantity: int) -> None:
    if quantity < 1:
        raise StockRefusal.BAD_QUANTITY.refused(f"got {quantity}")


stock_decider: Decider[InventoryCommand, Stock, InventoryEvent] = Decider(
    initial=Stock(), decide=decide, evolve=evolve, status=status, forget=forget
)
