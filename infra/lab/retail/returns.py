"""Credit notes → the orders that they are about. The data does not say which: it is derived.

A credit note that repeats a whole order of the same customer before that order would have been shipped
cancels it. Otherwise each article goes back to the customer's newest order that still has units of it, then
to the one before.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.lab.retail.invoices import CreditNote, InvoiceLine, InvoiceSale, Reason, Unmapped
from infra.lab.retail.steps import Cancel, Chain, OrderStep, Place, Return, Ship
from infra.lab.retail.stocking import is_rejected


@dataclass(slots=True)
class OpenOrder:
    """An order while the data is being read: `left` is what is with the customer, or on its way to them."""

    sale: InvoiceSale
    left: Counter[str]
    rejected: bool
    cancelled: Cancel | None = None
    returns: list[Return] = field(default_factory=list)

    @property
    def usual_shipping(self) -> datetime:
        return self.sale.at + lead_time(self.sale.number)

    def chain(self) -> Chain:
        """Place, then cancel, or ship and take returns. A rejected order is only placed."""
        sale = self.sale
        place = Place(sale.at, sale.number, sale.customer_id, sale.country, sale.lines, sale.charges)
        rest: list[OrderStep] = []
        if self.cancelled is not None:
            rest = [self.cancelled]
        elif not self.rejected:
            # What came back before its usual time of shipping was collected at the counter.
            shipped_at = min([self.usual_shipping, *(step.at for step in self.returns)])
            rest = [Ship(shipped_at, sale.number), *self.returns]
        return Chain(sale.number, (place, *rest))


def lead_time(order_id: str) -> timedelta:
    """From the order to its shipment: 4 to 48 hours, fixed by the order's number."""
    return timedelta(hours=4 + int(order_id) % 45)


class ReturnsLedger:
    """Who bought what and still has it; fed with sales and credits in the order of time."""

    def __init__(self) -> None:
        self.orders: list[OpenOrder] = []
        self._bought: dict[tuple[str, str], list[OpenOrder]] = defaultdict(list)
        self._by_customer: dict[str, list[OpenOrder]] = defaultdict(list)

    def sell(self, sale: InvoiceSale) -> None:
        """Remember an order; a guest's can be shipped, but nothing can be matched to it."""
        order = OpenOrder(sale, _units(sale.lines), is_rejected(sale.lines))
        self.orders.append(order)
        if sale.customer_id is not None:
            self._by_customer[sale.customer_id].append(order)
            for sku in order.left:
                self._bought[sale.customer_id, sku].append(order)

    def credit(self, credit: CreditNote) -> Sequence[Unmapped]:
        """Match one credit note; what finds no order is the result."""
        mirrored = self._mirrored(credit)
        if mirrored is not None:
            mirrored.cancelled = Cancel(credit.at, mirrored.sale.number, credit.number)
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
            order.returns.append(Return(credit.at, order.sale.number, credit.number, tuple(units.items())))
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
                taken.setdefault(order.sale.number, (order, Counter()))[1][line.sku] += units
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
