"""The plan of a load, complete before anything is sent: the steps of the invoices, deliveries, returns, periods.

Deliveries: the data has none. Each month's delivery of an article is exactly the units that the month's orders and
write-offs take; returns and finds are on top. So stock suffices in whatever order commands arrive: an order is rejected
if and only if it has one of the articles that are never stocked.

Returns: a credit note does not name its order. One that repeats a whole order of the same customer, before that order
would have been shipped, cancels it. Otherwise each article goes back to the customer's newest order that still has
units of it, then to the one before.

Periods: `read_book` reads the whole data set once, `Book.load` cuts a period out of it. Loads compose: periods that
follow each other, with the same `since`, are together one load of the whole.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from infra.lab.retail.invoices import CreditNote, Entry, Reason, Unmapped
from infra.lab.retail.steps import (
    Adjust,
    Cancel,
    Chain,
    InvoiceLine,
    OrderStep,
    Place,
    Receive,
    Return,
    Ship,
    Step,
)

NEVER_STOCKED = frozenset({"84880", "22922", "85067", "21062"})
"""Four articles of average sale: 1 to 3 orders in a hundred have one of them, and none has two."""


def month_of(at: datetime) -> datetime:
    """The first instant of the month."""
    return at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def demand(takers: Iterable[Place | Adjust]) -> Counter[tuple[datetime, str]]:
    """Units by (month, SKU) that orders, rejected ones too, and write-offs take."""
    units: Counter[tuple[datetime, str]] = Counter()
    for taker in takers:
        month = month_of(taker.at)
        match taker:
            case Place(lines=lines):
                for line in lines:
                    units[month, line.sku] += line.quantity
            case Adjust(sku=sku, quantity=quantity) if quantity < 0:
                units[month, sku] -= quantity
    return units


def deliveries(
    needed: Counter[tuple[datetime, str]], touched: Iterable[tuple[datetime, str]]
) -> Iterator[Receive]:
    """The month's whole delivery for every (month, SKU) that a load touches, by month and SKU."""
    for month, sku in sorted(set(touched)):
        if sku not in NEVER_STOCKED and needed[month, sku]:
            yield Receive(month, sku, needed[month, sku], f"delivery-{month:%Y-%m}")


@dataclass(slots=True)
class OpenOrder:
    """An order while the data is read; `left` are the units that the customer has or will receive."""

    placed: Place
    left: Counter[str]
    rejected: bool
    cancelled: Cancel | None = None
    returns: list[Return] = field(default_factory=list)

    @property
    def usual_shipping(self) -> datetime:
        return self.placed.at + lead_time(self.placed.order_id)

    def chain(self) -> Chain:
        """The order is placed, then cancelled, or shipped and perhaps returned. A rejected order is only placed."""
        placed = self.placed
        rest: list[OrderStep] = []
        if self.cancelled is not None:
            rest = [self.cancelled]
        elif not self.rejected:
            # What came back before its usual time of shipping was collected at the counter.
            shipped_at = min([self.usual_shipping, *(step.at for step in self.returns)])
            rest = [Ship(shipped_at, placed.order_id), *self.returns]
        return (placed, *rest)


def lead_time(order_id: str) -> timedelta:
    """From the order to its shipment: 4 to 48 hours, fixed by the order's number."""
    return timedelta(hours=4 + int(order_id) % 45)


class ReturnsLedger:
    """The goods that each customer has bought and not returned; orders and credits are added in the order of time."""

    def __init__(self) -> None:
        self.orders: list[OpenOrder] = []
        self._bought: dict[tuple[str, str], list[OpenOrder]] = defaultdict(list)
        self._by_customer: dict[str, list[OpenOrder]] = defaultdict(list)

    def add(self, placed: Place) -> None:
        """Record an order; a guest's can be shipped, but nothing can be matched to it."""
        rejected = any(line.sku in NEVER_STOCKED for line in placed.lines)
        self.orders.append(order := OpenOrder(placed, _units(placed.lines), rejected))
        if placed.customer_id is not None:
            self._by_customer[placed.customer_id].append(order)
            for sku in order.left:
                self._bought[placed.customer_id, sku].append(order)

    def credit(self, credit: CreditNote) -> Sequence[Unmapped]:
        """Match one credit note. Returns the lines that belong to no order."""
        mirrored = self._mirrored(credit)
        if mirrored is not None:
            mirrored.cancelled = Cancel(credit.at, mirrored.placed.order_id, credit.number)
            mirrored.left.clear()
            return []
        unmapped: list[Unmapped] = []
        taken: dict[str, tuple[OpenOrder, Counter[str]]] = {}
        for line in credit.lines:
            missing = self._take(credit.customer_id, line, taken)
            if missing:
                reason = self._why_missing(credit.customer_id, line.sku)
                value = -missing * line.unit_price
                unmapped.append(Unmapped(reason, credit.number, credit.at, 1, value))
        for order, units in taken.values():
            order.returns.append(
                Return(credit.at, order.placed.order_id, credit.number, tuple(units.items()))
            )
        return unmapped

    def _mirrored(self, credit: CreditNote) -> OpenOrder | None:
        units = _units(credit.lines)
        for order in reversed(self._by_customer[credit.customer_id]):
            if order.usual_shipping <= credit.at:
                continue
            if order.left == units and not (order.returns or order.rejected):
                return order
        return None

    def _take(
        self, customer_id: str, line: InvoiceLine, taken: dict[str, tuple[OpenOrder, Counter[str]]]
    ) -> int:
        missing = line.quantity
        for order in reversed(self._bought[customer_id, line.sku]):
            units = 0 if order.rejected else min(missing, order.left[line.sku])
            if units:
                order.left[line.sku] -= units
                taken.setdefault(order.placed.order_id, (order, Counter()))[1][line.sku] += units
                missing -= units
            if missing == 0:
                break
        return missing

    def _why_missing(self, customer_id: str, sku: str) -> Reason:
        bought = self._bought[customer_id, sku]
        if not bought:
            return Reason.NEVER_BOUGHT
        return Reason.WAS_REJECTED if all(order.rejected for order in bought) else Reason.ALL_RETURNED


def _units(lines: Sequence[InvoiceLine]) -> Counter[str]:
    units: Counter[str] = Counter()
    for line in lines:
        units[line.sku] += line.quantity
    return units


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
        """The instant before which the shop has no order."""
        return datetime.combine(self.since, time(), UTC)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The commands of a load: deliveries first, then each order's chain and the adjustments, in any order."""

    deliveries: tuple[Receive, ...]
    adjustments: tuple[Adjust, ...]
    chains: tuple[Chain, ...]
    unmapped: tuple[Unmapped, ...]

    def steps(self) -> Iterator[Step]:
        """Every step, deliveries first, each order's in order."""
        yield from self.deliveries
        yield from self.adjustments
        for chain in self.chains:
            yield from chain

    def lives(self) -> Iterator[Sequence[Step]]:
        """What may be sent side by side after the deliveries: each sequence in its own order."""
        yield from ((step,) for step in self.adjustments)
        yield from self.chains

    @property
    def order_lines(self) -> int:
        """The lines of the orders that are placed."""
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
            steps = tuple(step for step in chain if step.at in period)
            if chain[0].at >= period.opening:
                chains += [steps] if steps else []
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
    takers: list[Place | Adjust] = []
    adjustments: list[Adjust] = []
    unmapped: list[Unmapped] = []
    for entry in entries:
        match entry:
            case Place():
                ledger.add(entry)
                takers.append(entry)
            case CreditNote():
                unmapped += ledger.credit(entry)
            case Adjust():
                if entry.quantity > 0 and entry.sku in NEVER_STOCKED:
                    reason = Reason.FOUND_BUT_NOT_STOCKED
                    unmapped.append(Unmapped(reason, entry.number, entry.at, 1, 0))
                else:
                    takers.append(entry)
                    adjustments.append(entry)
            case Unmapped():
                unmapped.append(entry)
    chains = tuple(order.chain() for order in ledger.orders)
    return Book(demand(takers), tuple(adjustments), chains, tuple(unmapped))


def _taken(chain: Chain) -> set[tuple[datetime, str]]:
    return {(month_of(step.at), line.sku) for step in chain if isinstance(step, Place) for line in step.lines}


def _unknown(chain: Chain, steps: Iterable[OrderStep]) -> Iterator[Unmapped]:
    prices = {line.sku: line.unit_price for step in chain if isinstance(step, Place) for line in step.lines}
    for step in steps:
        lines = step.lines if isinstance(step, Return) else ()
        value = -sum(prices[sku] * units for sku, units in lines)
        name = step.credit if isinstance(step, Return) else step.order_id
        yield Unmapped(Reason.BEFORE_THE_LOAD, name, step.at, max(1, len(lines)), value)
