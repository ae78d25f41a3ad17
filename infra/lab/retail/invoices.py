"""Rows → invoices, each of one kind: a sale, a credit, a stock count, or nothing that the shop knows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from infra.lab.retail.rows import SheetRow

CHARGE_CODES = frozenset(
    {"POST", "DOT", "M", "D", "S", "C2", "BANK CHARGES", "AMAZONFEE", "CRUK", "PADS", "B"},
)
"""Codes of money that is not goods: postage, manual entries, discounts, samples, carriage, fees, gifts."""


class Reason(StrEnum):
    """Why something in the data has no command."""

    BAD_DEBT = "bad debt is bookkeeping, not a sale"
    NO_GOODS = "the invoice contains only charges, no goods"
    CHARGE_CREDITED = "a charge was credited: only goods come back"
    CHARGE_COUNTED = "a charge has no stock to count"
    GUEST_CREDIT = "a credit to a guest names no customer to match"
    NEVER_BOUGHT = "the customer did not buy this article in the data before"
    ALL_RETURNED = "more came back than was bought and is still with the customer"
    WAS_REJECTED = "the order it belongs to was rejected"
    FOUND_BUT_NOT_STOCKED = "a find of an article that the shop never stocks"
    BEFORE_THE_LOAD = "it belongs to an order placed before the load begins"


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """Units of one article; `unit_price` in micros."""

    sku: str
    quantity: int
    unit_price: int


@dataclass(frozen=True, slots=True)
class InvoiceCharge:
    """Postage, a fee or a discount; `amount` in micros, negative for a discount."""

    code: str
    amount: int


@dataclass(frozen=True, slots=True)
class Unmapped:
    """Lines of an invoice that have no command; `value` is quantity x price in micros."""

    reason: Reason
    invoice: str
    at: datetime
    lines: int
    value: int


@dataclass(frozen=True, slots=True)
class InvoiceSale:
    """An ordinary invoice: the order it stands for. Lines as written, the same SKU may stand on several."""

    number: str
    at: datetime
    customer_id: str | None
    country: str
    lines: tuple[InvoiceLine, ...]
    charges: tuple[InvoiceCharge, ...]


@dataclass(frozen=True, slots=True)
class CreditNote:
    """A cancellation or return of goods; quantities are positive. It does not say of which purchase."""

    number: str
    at: datetime
    customer_id: str
    lines: tuple[InvoiceLine, ...]


@dataclass(frozen=True, slots=True)
class StockCount:
    """A write-off (negative) or a find (positive): no customer and no price."""

    number: str
    at: datetime
    sku: str
    quantity: int
    reason: str


Entry = InvoiceSale | CreditNote | StockCount | Unmapped


def is_charge(sku: str) -> bool:
    """Whether a stock code stands for money rather than goods; gift vouchers are money."""
    return sku in CHARGE_CODES or sku.startswith("GIFT_")


def entries(rows: Iterable[SheetRow]) -> Sequence[Entry]:
    """What the rows say, invoice by invoice, by time; invoices of the same minute keep the data's order."""
    invoices: dict[str, list[SheetRow]] = {}
    for row in rows:
        invoices.setdefault(row.invoice, []).append(row)
    read = [entry for invoice in invoices.values() for entry in _read_invoice(invoice)]
    return sorted(read, key=lambda entry: entry.at)


def _read_invoice(rows: Sequence[SheetRow]) -> Iterator[Entry]:
    first = rows[0]
    goods = [row for row in rows if not is_charge(row.sku)]
    charges = [row for row in rows if is_charge(row.sku)]
    if first.invoice.startswith("A"):
        yield _unmapped(Reason.BAD_DEBT, rows)
    elif first.invoice.startswith("C"):
        yield from _read_credit(goods, charges)
    elif first.customer_id is None and all(row.unit_price == 0 for row in rows):
        yield from (_count(row, position) for position, row in enumerate(goods))
        if charges:
            yield _unmapped(Reason.CHARGE_COUNTED, charges)
    elif not goods:
        yield _unmapped(Reason.NO_GOODS, charges)
    else:
        yield InvoiceSale(
            number=first.invoice,
            at=_at(rows),
            customer_id=first.customer_id,
            country=first.country,
            lines=tuple(InvoiceLine(row.sku, row.quantity, row.unit_price) for row in goods),
            charges=tuple(InvoiceCharge(row.sku, row.quantity * row.unit_price) for row in charges),
        )


def _read_credit(goods: Sequence[SheetRow], charges: Sequence[SheetRow]) -> Iterator[Entry]:
    if charges:
        yield _unmapped(Reason.CHARGE_CREDITED, charges)
    if not goods:
        return
    if goods[0].customer_id is None:
        yield _unmapped(Reason.GUEST_CREDIT, goods)
        return
    lines = tuple(InvoiceLine(row.sku, -row.quantity, row.unit_price) for row in goods)
    yield CreditNote(goods[0].invoice, _at(goods), goods[0].customer_id, lines)


def _count(row: SheetRow, position: int) -> StockCount:
    number = row.invoice if position == 0 else f"{row.invoice}-{position + 1}"
    fallback = "found" if row.quantity > 0 else "written off"
    return StockCount(number, row.at, row.sku, row.quantity, row.description or fallback)


def _unmapped(reason: Reason, rows: Sequence[SheetRow]) -> Unmapped:
    value = sum(row.quantity * row.unit_price for row in rows)
    return Unmapped(reason, rows[0].invoice, _at(rows), len(rows), value)


def _at(rows: Sequence[SheetRow]) -> datetime:
    # A few invoices were typed over two minutes: the first one counts.
    return min(row.at for row in rows)
