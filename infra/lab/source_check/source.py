"""The retail file as plain facts: sales, credits, stock counts. Money is Decimal pounds.

The rules are those of docs/reference/real-input.md, written a second time on purpose: `infra/lab/retail` is what is
checked.
"""

import csv
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from infra.base.settings import ROOT

CSV = ROOT / "infra" / "data" / "online-retail.csv.xz"
NOT_GOODS = re.compile(r"POST|DOT|[MDSB]|C2|CRUK|PADS|AMAZONFEE|BANK CHARGES|GIFT_.*")
NEVER_STOCKED = {"84880", "22922", "85067", "21062"}


@dataclass
class Sale:
    """An invoice with goods. `goods`: (SKU, units, price) by line; `customer` is None for a guest.

    `position` is the invoice's in the file: it orders invoices of the same minute.
    """

    position: int
    customer: str | None
    country: str
    at: datetime
    goods: list[tuple[str, int, Decimal]] = field(default_factory=list)
    charges: Decimal = Decimal()

    @property
    def day(self) -> date:
        return self.at.date()

    @property
    def units(self) -> int:
        return sum(units for _, units, _ in self.goods)

    @property
    def gross(self) -> Decimal:
        return sum((units * price for _, units, price in self.goods), self.charges)

    @property
    def rejected(self) -> bool:
        return any(sku in NEVER_STOCKED for sku, _, _ in self.goods)

    def by_sku(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for sku, units, _ in self.goods:
            counted[sku] += units
        return counted

    def value_by_sku(self) -> dict[str, Decimal]:
        """Pounds."""
        values: dict[str, Decimal] = {}
        for sku, units, price in self.goods:
            values[sku] = values.get(sku, Decimal()) + units * price
        return values


@dataclass
class Credit:
    """A credit note of a customer: the units of each SKU that it gives back."""

    position: int
    customer: str
    at: datetime
    units: Counter[str] = field(default_factory=Counter)


@dataclass
class InvoiceSource:
    """`sales` and `credits` by invoice number, in the file's order; `counts`: (day, SKU, units)."""

    sales: dict[str, Sale] = field(default_factory=dict)
    credits: dict[str, Credit] = field(default_factory=dict)
    counts: list[tuple[date, str, int]] = field(default_factory=list)

    def between(self, first: date, last: date) -> "InvoiceSource":
        """The part of these days, both included."""
        return InvoiceSource(
            {number: sale for number, sale in self.sales.items() if first <= sale.day <= last},
            {number: note for number, note in self.credits.items() if first <= note.at.date() <= last},
            [count for count in self.counts if first <= count[0] <= last],
        )


@dataclass(frozen=True)
class LoadedSource:
    """`whole` is the file, `source` its loaded days; `cancelled` are the orders that the shop has cancelled."""

    whole: InvoiceSource
    source: InvoiceSource
    cancelled: frozenset[str]

    def sold(self) -> Iterator[tuple[str, Sale]]:
        for number, sale in self.source.sales.items():
            if not sale.rejected and number not in self.cancelled:
                yield number, sale


def read_source(path: Path = CSV) -> InvoiceSource:
    """The whole file."""
    invoices: dict[str, list[dict[str, str]]] = {}
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            invoices.setdefault(row["InvoiceNo"], []).append(row)
    source = InvoiceSource()
    for position, (number, rows) in enumerate(invoices.items()):
        _enter(source, position, number, rows)
    return source


def _enter(source: InvoiceSource, position: int, number: str, rows: list[dict[str, str]]) -> None:
    goods = [row for row in rows if not NOT_GOODS.fullmatch(_sku(row))]
    customer = rows[0]["CustomerID"].partition(".")[0] or None
    if number.startswith("A") or not goods:
        return
    if number.startswith("C"):
        if customer is not None:
            note = Credit(position, customer, _first_time(goods))
            for row in goods:
                note.units[_sku(row)] -= int(row["Quantity"])
            source.credits[number] = note
    elif customer is None and not any(Decimal(row["UnitPrice"]) for row in rows):
        source.counts += [(_first_time([row]).date(), _sku(row), int(row["Quantity"])) for row in goods]
    else:
        sale = Sale(position, customer, rows[0]["Country"], _first_time(rows))
        for row in rows:
            units, price = int(row["Quantity"]), Decimal(row["UnitPrice"])
            if not NOT_GOODS.fullmatch(_sku(row)):
                sale.goods.append((_sku(row), units, price))
            else:
                sale.charges += units * price
        source.sales[number] = sale


def _sku(row: dict[str, str]) -> str:
    return row["StockCode"].strip().upper()


def _first_time(rows: Iterable[dict[str, str]]) -> datetime:
    return min(datetime.fromisoformat(row["InvoiceDate"]) for row in rows).replace(tzinfo=UTC)
