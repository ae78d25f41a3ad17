"""The plan of a load: which steps the data becomes, exactly, before anything is sent.

`read_book` reads the whole data set once; `Book.load` cuts a period out of it. Loads compose: periods that
follow each other, with the same `since`, are together one load of the whole, whatever the cuts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

from infra.lab.retail.invoices import CreditNote, Entry, InvoiceSale, Reason, StockCount, Unmapped
from infra.lab.retail.returns import ReturnsLedger
from infra.lab.retail.steps import Adjust, Chain, OrderStep, Place, Receive, Return, Step
from infra.lab.retail.stocking import NEVER_STOCKED, deliveries, demand, month_of


@dataclass(frozen=True, slots=True)
class Period:
    """From the start of day `first` to the end of day `last`.

    Orders placed before `since` are not in the shop: later steps of theirs are left out, and counted.
    """

    first: date
    last: date
    since: date

    def __contains__(self, at: datetime) -> bool:
        return self.first <= at.date() <= self.last

    @property
    def opening(self) -> datetime:
        """The instant before which no order is known."""
        return datetime.combine(self.since, time(), UTC)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What is sent: deliveries, then each order's chain and the adjustments, in any order among them."""

    deliveries: tuple[Receive, ...]
    adjustments: tuple[Adjust, ...]
    chains: tuple[Chain, ...]
    unmapped: tuple[Unmapped, ...]

    def steps(self) -> Iterator[Step]:
        """Every step, deliveries first, each order's in order."""
        yield from self.deliveries
        yield from self.adjustments
        for chain in self.chains:
            yield from chain.steps

    @property
    def order_lines(self) -> int:
        """Lines of the orders that are placed."""
        return sum(len(step.lines) for step in self.steps() if isinstance(step, Place))


@dataclass(frozen=True, slots=True)
class Book:
    """The whole data set, read."""

    needed: Counter[tuple[datetime, str]]
    adjustments: tuple[Adjust, ...]
    chains: tuple[Chain, ...]
    unmapped: tuple[Unmapped, ...]

    def load(self, period: Period) -> LoadPlan:
        """The steps of a period, by each step's own time."""
        adjustments = tuple(step for step in self.adjustments if step.at in period)
        unmapped = [gap for gap in self.unmapped if gap.at in period]
        chains: list[Chain] = []
        for chain in self.chains:
            steps = tuple(step for step in chain.steps if step.at in period)
            if chain.steps[0].at >= period.opening:
                chains += [replace(chain, steps=steps)] if steps else []
            else:
                unmapped += _unknown(chain, steps)
        touched = {(month_of(step.at), step.sku) for step in adjustments if step.quantity < 0}
        for chain in chains:
            touched |= _taken(chain)
        received = tuple(deliveries(self.needed, touched))
        return LoadPlan(received, adjustments, tuple(chains), tuple(unmapped))


def read_book(entries: Iterable[Entry]) -> Book:
    """Read entries, in the order of time, into a Book."""
    ledger = ReturnsLedger()
    takers: list[InvoiceSale | StockCount] = []
    adjustments: list[Adjust] = []
    unmapped: list[Unmapped] = []
    for entry in entries:
        match entry:
            case InvoiceSale():
                ledger.sell(entry)
                takers.append(entry)
            case CreditNote():
                unmapped += ledger.credit(entry)
            case StockCount(number, at, sku, quantity, reason):
                if quantity > 0 and sku in NEVER_STOCKED:
                    unmapped.append(Unmapped(Reason.FOUND_BUT_NOT_STOCKED, number, at, 1, 0))
                else:
                    takers.append(entry)
                    adjustments.append(Adjust(at, sku, quantity, number, reason))
            case Unmapped():
                unmapped.append(entry)
    chains = tuple(order.chain() for order in ledger.orders)
    return Book(demand(takers), tuple(adjustments), chains, tuple(unmapped))


def _taken(chain: Chain) -> set[tuple[datetime, str]]:
    return {
        (month_of(step.at), line.sku)
        for step in chain.steps
        if isinstance(step, Place)
        for line in step.lines
    }


def _unknown(chain: Chain, steps: Iterable[OrderStep]) -> Iterator[Unmapped]:
    prices = {
        line.sku: line.unit_price for step in chain.steps if isinstance(step, Place) for line in step.lines
    }
    for step in steps:
        lines = step.lines if isinstance(step, Return) else ()
        value = -sum(prices[sku] * units for sku, units in lines)
        name = step.credit if isinstance(step, Return) else step.order_id
        yield Unmapped(Reason.BEFORE_THE_LOAD, name, step.at, max(1, len(lines)), value)
