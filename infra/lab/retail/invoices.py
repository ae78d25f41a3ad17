"""The retail file: its typed rows, what their articles are called, and their invoices: orders, credit notes, stock
counts, unmapped lines."""

import csv
import lzma
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from io import StringIO
from pathlib import Path

from infra.base.errors import DaybookError
from infra.base.files import write_whole
from infra.base.settings import ROOT
from infra.lab.retail.steps import MICROS, Adjust, InvoiceCharge, InvoiceLine, Place

RETAIL_CSV = ROOT / "infra" / "data" / "online-retail.csv.xz"


class UnreadableRow(DaybookError, ValueError):
    """A row that is not of the data set's form; the text names the invoice and the field."""


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One line of an invoice. `unit_price`: micros of a pound; `at`: the shop's local time, read as UTC."""

    invoice: str
    sku: str
    description: str
    quantity: int
    at: datetime
    unit_price: int
    customer_id: str | None
    country: str


def read_rows() -> Iterator[SheetRow]:
    """Every row of the file, in the file's order. Raises UnreadableRow."""
    with lzma.open(RETAIL_CSV, "rt", encoding="utf-8", newline="") as file:
        for record in csv.DictReader(file):
            yield parse(record)


def parse(record: Mapping[str, str]) -> SheetRow:
    """One CSV record as a Row. Raises UnreadableRow."""
    try:
        return SheetRow(
            invoice=record["InvoiceNo"],
            sku=record["StockCode"].strip().upper(),  # "85123a" and "85123A" are one article
            description=record["Description"].strip(),
            quantity=int(record["Quantity"]),
            at=_time(record["InvoiceDate"]),
            unit_price=to_micros(record["UnitPrice"]),
            customer_id=record["CustomerID"].removesuffix(".0") or None,
            country=record["Country"],
        )
    except (KeyError, ValueError, ArithmeticError) as error:
        raise UnreadableRow(f"invoice {record.get('InvoiceNo', '?')}: {error}") from error


@lru_cache(maxsize=4096)
def to_micros(decimal: str) -> int:
    """An exact decimal as micros: "2.55" is 2,550,000. Raises ValueError for more than six places."""
    micros = Decimal(decimal) * MICROS
    if micros != int(micros):
        raise ValueError(f"{decimal} has more than six decimal places")
    return int(micros)


@lru_cache(maxsize=4096)
def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def described(rows: Iterable[SheetRow]) -> dict[str, str]:
    """SKU → the description that most of its lines have; the first in the alphabet of several. Some have none."""
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.description:
            lines[row.sku][row.description] += 1
    return {sku: min(counts, key=lambda text: (-counts[text], text)) for sku, counts in sorted(lines.items())}


def write_articles(target: Path) -> None:
    """Writes a CSV file with the columns sku and description. Reads the whole retail file: some seconds."""
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("sku", "description"))
    writer.writerows(described(read_rows()).items())
    write_whole(target, text.getvalue().encode())


CHARGE_CODES = frozenset(
    {"POST", "DOT", "M", "D", "S", "C2", "BANK CHARGES", "AMAZONFEE", "CRUK", "PADS", "B"}
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
class Unmapped:
    """Lines of an invoice that have no command; `value` is quantity x price in micros."""

    reason: Reason
    invoice: str
    at: datetime
    lines: int
    value: int


@dataclass(frozen=True, slots=True)
class CreditNote:
    """A cancellation or return of goods; quantities are positive. It does not name the purchase."""

    number: str
    at: datetime
    customer_id: str
    lines: tuple[InvoiceLine, ...]


Entry = Place | CreditNote | Adjust | Unmapped


def is_charge(sku: str) -> bool:
    """Whether a stock code stands for money rather than goods; gift vouchers are money."""
    return sku in CHARGE_CODES or sku.startswith("GIFT_")


def entries(rows: Iterable[SheetRow]) -> Sequence[Entry]:
    """The invoices, by time; invoices of the same minute keep the data's order."""
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
        yield Place(
            at=_at(rows),
            order_id=first.invoice,
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


def _count(row: SheetRow, position: int) -> Adjust:
    number = row.invoice if position == 0 else f"{row.invoice}-{position + 1}"
    fallback = "found" if row.quantity > 0 else "written off"
    return Adjust(row.at, row.sku, row.quantity, number, row.description or fallback)


def _unmapped(reason: Reason, rows: Sequence[SheetRow]) -> Unmapped:
    value = sum(row.quantity * row.unit_price for row in rows)
    return Unmapped(reason, rows[0].invoice, _at(rows), len(rows), value)


def _at(rows: Sequence[SheetRow]) -> datetime:
    # A few invoices were typed over two minutes: the first one counts.
    return min(row.at for row in rows)
