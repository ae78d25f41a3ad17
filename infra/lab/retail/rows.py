"""The rows of the retail data set, typed; nothing is interpreted here."""

import csv
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

from infra.base.errors import DaybookError
from infra.base.settings import ROOT

RETAIL_CSV = ROOT / "infra" / "data" / "online-retail.csv.xz"
MICROS = 1_000_000


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


def read_rows(path: Path = RETAIL_CSV) -> Iterator[SheetRow]:
    """Every row of the file, in the file's order. Raises UnreadableRow."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
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


def to_decimal(micros: int) -> str:
    """Micros as the shortest exact decimal with at least two places: 2,550,000 is "2.55"."""
    sign = "-" if micros < 0 else ""
    whole, rest = divmod(abs(micros), MICROS)
    return f"{sign}{whole}.{f'{rest:06d}'.rstrip('0').ljust(2, '0')}"


@lru_cache(maxsize=4096)
def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
