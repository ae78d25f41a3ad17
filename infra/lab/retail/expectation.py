"""The content of the shop after a load, computed from the steps alone: with no code and no response of the shop."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infra.lab.checker.oracle import Ledger, gross
from infra.lab.retail.plan import NEVER_STOCKED
from infra.lab.retail.steps import (
    CORRELATION,
    Adjust,
    Cancel,
    InvoiceLine,
    OrderStep,
    Place,
    Receive,
    Return,
    Ship,
    Step,
)


@dataclass(frozen=True, slots=True)
class ExpectedOrder:
    """Money in micros; `status` as the shop names it."""

    status: str
    gross: int
    refund: int


class Account:
    """The end of one order, computed from its steps."""

    def __init__(self, life: Sequence[OrderStep]) -> None:
        placed, *later = life
        assert isinstance(placed, Place), f"{placed.order_id} begins without its order"
        self.placed = placed
        self.ordered: Counter[str] = Counter()
        for line in placed.lines:
            self.ordered[line.sku] += line.quantity
        self.rejected = bool(self.ordered.keys() & NEVER_STOCKED)
        self.cancelled = any(isinstance(step, Cancel) for step in later)
        self.shipped = any(isinstance(step, Ship) for step in later)
        self.returns = [step for step in later if isinstance(step, Return)]
        left = list(placed.lines)
        self.refunds = [_refund(left, step) for step in self.returns]
        self.back = sum(units for step in self.returns for _, units in step.lines)

    @property
    def status(self) -> str:
        if self.rejected:
            return "rejected"
        if self.cancelled:
            return "cancelled"
        if self.back:
            return "returned" if self.back == self.ordered.total() else "partly_returned"
        return "shipped" if self.shipped else "confirmed"

    @property
    def gross(self) -> int:
        return gross(self.placed.lines, self.placed.charges)

    def apply(self, stock: Mapping[str, Ledger]) -> None:
        """What the order does to the stock. Reservations of a rejected or cancelled order are released."""
        if self.rejected or self.cancelled:
            return
        for sku, units in self.ordered.items():
            if self.shipped:
                stock[sku].issued += units
            else:
                stock[sku].reservations[self.placed.order_id] = units
        for step in self.returns:
            for sku, units in step.lines:
                stock[sku].returned += units

    def order(self) -> ExpectedOrder:
        return ExpectedOrder(self.status, self.gross, sum(self.refunds))


def _refund(left: list[InvoiceLine], step: Return) -> int:
    """In micros, at the price paid. Of an article in several lines, the first line's units are returned first.

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


@dataclass(frozen=True, slots=True)
class ExpectedDay:
    """One (day, country), money in micros.

    A sale counts on the day of the order if it was confirmed and not cancelled, a return on its own day.
    """

    orders: int
    units: int
    gross: int
    returned: int


@dataclass(frozen=True, slots=True)
class RetailExpectation:
    """By order, by SKU, by (day, country), and how many commands were sent."""

    orders: Mapping[str, ExpectedOrder]
    stock: Mapping[str, Ledger]
    days: Mapping[tuple[str, str], ExpectedDay]
    commands: int

    def rows(self) -> Iterator[dict[str, Any]]:
        """What the audit reads, JSON-able: `kind`, `key`, and what is expected of an order or a SKU. The last row is
        there also where nothing was sent: the audit refuses a file that names no sender."""
        for order_id, order in self.orders.items():
            yield {"kind": "orders", "key": order_id, "correlation": CORRELATION, **asdict(order)}
        for sku, ledger in sorted(self.stock.items()):
            figures = {"on_hand": ledger.on_hand, "reserved": ledger.reserved}
            yield {"kind": "stock", "key": sku, "correlation": CORRELATION, **figures}
        yield {"kind": "totals", "key": "commands", "correlation": CORRELATION, "count": self.commands}


def expected_refusals(steps: Iterable[Step]) -> Counter[str]:
    """Refusals by code: what was never stocked cannot be written off."""
    return Counter("below_reserved" for step in steps if _is_refused(step))


def _is_refused(step: Step) -> bool:
    return isinstance(step, Adjust) and step.quantity < 0 and step.sku in NEVER_STOCKED


def expect(steps: Iterable[Step]) -> RetailExpectation:
    """The content of the shop after a load, or after several that compose; each order's steps are in their order."""
    stock: dict[str, Ledger] = defaultdict(Ledger)
    lives: dict[str, list[OrderStep]] = {}
    commands = 0
    for step in steps:
        commands += 1
        match step:
            case Receive(sku=sku, quantity=quantity):
                stock[sku].received += quantity
            case Adjust() if _is_refused(step):
                pass
            case Adjust(sku=sku, quantity=quantity):
                stock[sku].adjusted += quantity
            case _:
                lives.setdefault(step.order_id, []).append(step)
    accounts = {order_id: Account(life) for order_id, life in lives.items()}
    for account in accounts.values():
        account.apply(stock)
    orders = {order_id: account.order() for order_id, account in accounts.items()}
    return RetailExpectation(orders, dict(stock), _days(accounts.values()), commands)


def _days(accounts: Iterable[Account]) -> dict[tuple[str, str], ExpectedDay]:
    counted: dict[tuple[str, str], Counter[str]] = {}
    for account in accounts:
        if account.rejected or account.cancelled:
            continue
        country = account.placed.country
        day = counted.setdefault((account.placed.at.date().isoformat(), country), Counter())
        day.update(orders=1, units=account.ordered.total(), gross=account.gross)
        for step, refund in zip(account.returns, account.refunds, strict=True):
            counted.setdefault((step.at.date().isoformat(), country), Counter()).update(returned=refund)
    names = ("orders", "units", "gross", "returned")
    return {key: ExpectedDay(*(day[name] for name in names)) for key, day in counted.items()}
