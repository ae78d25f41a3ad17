"""What must be in the shop after a load, counted from the steps alone: no code of the shop, no answer of it.

The audit compares this with the log, the read models and Spark. All is exact, whatever the order of arrival.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from infra.lab.retail.account import Account, ExpectedOrder
from infra.lab.retail.requests import CORRELATION, CURRENCY
from infra.lab.retail.steps import Adjust, OrderStep, Receive, Step
from infra.lab.retail.stocking import NEVER_STOCKED


@dataclass(frozen=True, slots=True)
class ExpectedStock:
    """Units of one SKU: what moved, and what is held for orders that are confirmed and not shipped."""

    received: int
    adjusted: int
    issued: int
    returned: int
    reserved: int

    @property
    def on_hand(self) -> int:
        return self.received + self.adjusted + self.returned - self.issued


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
    """`totals`: events by short type name, then `commands`, `refused`, `orders`, `order_lines`.

    `ReservationsRecorded` and `MovementsRecorded` are not counted: how many answers of inventory travel
    together depends on timing.
    """

    orders: Mapping[str, ExpectedOrder]
    stock: Mapping[str, ExpectedStock]
    days: Mapping[tuple[str, str], ExpectedDay]
    refused: Mapping[str, int]
    totals: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """JSON-able: `days` is a list of rows, everything else as named."""
        return {
            "currency": CURRENCY,
            "correlation": CORRELATION,
            "orders": {key: asdict(order) for key, order in self.orders.items()},
            "stock": {
                key: asdict(stock) | {"on_hand": stock.on_hand} for key, stock in sorted(self.stock.items())
            },
            "days": [
                {"day": day, "country": country} | asdict(row)
                for (day, country), row in sorted(self.days.items())
            ],
            "refused": dict(self.refused),
            "totals": dict(self.totals),
        }


def expected_refusals(steps: Iterable[Step]) -> Counter[str]:
    """Refusals by code: what was never stocked cannot be written off."""
    return Counter("below_reserved" for step in steps if _is_refused(step))


def _is_refused(step: Step) -> bool:
    return isinstance(step, Adjust) and step.quantity < 0 and step.sku in NEVER_STOCKED


def expect(steps: Iterable[Step]) -> RetailExpectation:
    """The end of a load, or of several that compose. Steps of one order must be in their order."""
    moves: dict[str, Counter[str]] = {}
    lives: dict[str, list[OrderStep]] = {}
    totals: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for step in steps:
        totals["commands"] += 1
        match step:
            case Receive(sku=sku, quantity=quantity):
                moves.setdefault(sku, Counter())["received"] += quantity
                totals["StockReceived"] += 1
            case Adjust() if _is_refused(step):
                refused.update(expected_refusals([step]))
            case Adjust(sku=sku, quantity=quantity):
                moves.setdefault(sku, Counter())["adjusted"] += quantity
                totals["StockAdjusted"] += 1
            case _:
                lives.setdefault(step.order_id, []).append(step)
    accounts = {order_id: Account(life) for order_id, life in lives.items()}
    for account in accounts.values():
        totals += account.events
        account.move(moves)
    orders = {order_id: account.order() for order_id, account in accounts.items()}
    totals += Counter({"orders": len(orders), "order_lines": sum(order.lines for order in orders.values())})
    totals["refused"] = refused.total()
    return RetailExpectation(orders, _stock(moves), _days(accounts.values()), refused, totals)


def _stock(moves: Mapping[str, Counter[str]]) -> dict[str, ExpectedStock]:
    names = ("received", "adjusted", "issued", "returned", "reserved")
    return {sku: ExpectedStock(*(counted[name] for name in names)) for sku, counted in moves.items()}


def _days(accounts: Iterable[Account]) -> dict[tuple[str, str], ExpectedDay]:
    counted: dict[tuple[str, str], Counter[str]] = {}
    for account in accounts:
        if account.rejected or account.cancelled:
            continue
        country = account.place.country
        day = counted.setdefault((account.place.at.date().isoformat(), country), Counter())
        day.update(orders=1, units=account.asked.total(), gross=account.gross)
        for step, refund in zip(account.returns, account.refunds, strict=True):
            counted.setdefault((step.at.date().isoformat(), country), Counter()).update(returned=refund)
    names = ("orders", "units", "gross", "returned")
    return {key: ExpectedDay(*(day[name] for name in names)) for key, day in counted.items()}
