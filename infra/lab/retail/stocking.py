"""Deliveries: the data has none, so they are derived from what it takes out of the house.

Each month's delivery of an article brings exactly the units that the month's orders and write-offs take; what
comes back or is found is on top. So stock suffices in whatever order commands arrive: an order is rejected if
and only if it has one of the articles that are never stocked.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from infra.lab.retail.invoices import InvoiceLine, InvoiceSale, StockCount
from infra.lab.retail.steps import Receive

NEVER_STOCKED = frozenset({"84880", "22922", "85067", "21062"})
"""Four articles of middling sale: 1 to 3 orders in a hundred have one of them, and none has two."""


def is_rejected(lines: Iterable[InvoiceLine]) -> bool:
    """Whether an order of these lines is rejected."""
    return any(line.sku in NEVER_STOCKED for line in lines)


def month_of(at: datetime) -> datetime:
    """The first instant of the month."""
    return at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def demand(takers: Iterable[InvoiceSale | StockCount]) -> Counter[tuple[datetime, str]]:
    """Units by (month, SKU) that orders ask for, the rejected ones too, and that write-offs take."""
    units: Counter[tuple[datetime, str]] = Counter()
    for taker in takers:
        month = month_of(taker.at)
        match taker:
            case InvoiceSale(lines=lines):
                for line in lines:
                    units[month, line.sku] += line.quantity
            case StockCount(sku=sku, quantity=quantity) if quantity < 0:
                units[month, sku] -= quantity
    return units


def deliveries(
    needed: Counter[tuple[datetime, str]], touched: Iterable[tuple[datetime, str]]
) -> Sequence[Receive]:
    """The month's whole delivery for every (month, SKU) that a load touches, by month and SKU."""
    return list(_deliveries(needed, touched))


def _deliveries(
    needed: Counter[tuple[datetime, str]], touched: Iterable[tuple[datetime, str]]
) -> Iterator[Receive]:
    for month, sku in sorted(set(touched)):
        if sku not in NEVER_STOCKED and needed[month, sku]:
            yield Receive(month, sku, needed[month, sku], f"delivery-{month:%Y-%m}")
