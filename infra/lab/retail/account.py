"""One order's life, counted from its steps: its end, its money, its events and what it moved."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infra.lab.retail.invoices import InvoiceLine
from infra.lab.retail.steps import Cancel, OrderStep, Place, Return, Ship
from infra.lab.retail.stocking import NEVER_STOCKED


@dataclass(frozen=True, slots=True)
class ExpectedOrder:
    """`day` (ISO) is the order's; money in micros; `status` as the shop names it."""

    status: str
    day: str
    country: str
    customer_id: str | None
    lines: int
    units: int
    gross: int
    returned_units: int
    refund: int


class Account:
    """One order's life, counted."""

    def __init__(self, life: Sequence[OrderStep]) -> None:
        place, *later = life
        assert isinstance(place, Place), f"{place.order_id} is not placed in what is expected"
        self.place = place
        self.asked: Counter[str] = Counter()
        for line in place.lines:
            self.asked[line.sku] += line.quantity
        self.rejected = bool(self.asked.keys() & NEVER_STOCKED)
        self.cancelled = any(isinstance(step, Cancel) for step in later)
        self.shipped = any(isinstance(step, Ship) for step in later)
        self.returns = [step for step in later if isinstance(step, Return)]
        left = list(place.lines)
        self.refunds = [_refund(left, step) for step in self.returns]
        self.back = sum(units for step in self.returns for _, units in step.lines)

    @property
    def status(self) -> str:
        if self.rejected:
            return "rejected"
        if self.cancelled:
            return "cancelled"
        if self.back:
            return "returned" if self.back == self.asked.total() else "partly_returned"
        return "shipped" if self.shipped else "confirmed"

    @property
    def gross(self) -> int:
        goods = sum(line.quantity * line.unit_price for line in self.place.lines)
        return goods + sum(charge.amount for charge in self.place.charges)

    @property
    def events(self) -> Counter[str]:
        """Events by type. Exact as no order has two never stocked articles: then timing would matter."""
        stocked = len(self.asked.keys() - NEVER_STOCKED)
        events = Counter({"OrderPlaced": 1, "StockReserved": stocked})
        events["OrderRejected" if self.rejected else "OrderConfirmed"] += 1
        if self.rejected or self.cancelled:
            events["StockReleased"] += stocked
        if self.cancelled:
            events["OrderCancelled"] += 1
        if self.shipped:
            events += Counter({"OrderShipped": 1, "StockIssued": stocked})
        events["OrderReturned"] += len(self.returns)
        events["StockReturned"] += sum(len(step.lines) for step in self.returns)
        return events

    def move(self, moves: dict[str, Counter[str]]) -> None:
        if self.rejected:
            # What was held is released; the article that is never stocked has no stock to count.
            return
        for sku, units in self.asked.items():
            moves.setdefault(sku, Counter())["issued" if self.shipped else "reserved"] += units * (
                not self.cancelled
            )
        for step in self.returns:
            for sku, units in step.lines:
                moves[sku]["returned"] += units

    def order(self) -> ExpectedOrder:
        return ExpectedOrder(
            status=self.status,
            day=self.place.at.date().isoformat(),
            country=self.place.country,
            customer_id=self.place.customer_id,
            lines=len(self.place.lines),
            units=self.asked.total(),
            gross=self.gross,
            returned_units=self.back,
            refund=sum(self.refunds),
        )


def _refund(left: list[InvoiceLine], step: Return) -> int:
    """Micros: the price paid. Of an article in several lines, the first line's units come back first.

    `left` is what the customer still has; it shrinks.
    """
    refund = 0
    for sku, units in step.lines:
        for position, line in enumerate(left):
            taken = min(units, line.quantity) if line.sku == sku else 0
            left[position] = InvoiceLine(line.sku, line.quantity - taken, line.unit_price)
            refund += taken * line.unit_price
            units -= taken
    return refund
