"""Little data sets, written as the CSV writes them."""

import csv
import io
from collections.abc import Sequence
from datetime import date

from infra.lab.retail.invoices import Entry, SheetRow, entries, parse
from infra.lab.retail.plan import Book, Period, read_book

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"
ALWAYS = Period(date(2010, 12, 1), date(2011, 8, 31), date(2010, 12, 1))


def rows(lines: str) -> Sequence[SheetRow]:
    """CSV lines without the header; indentation is dropped."""
    text = HEADER + "\n".join(line.strip() for line in lines.strip().splitlines())
    return [parse(record) for record in csv.DictReader(io.StringIO(text))]


def read(lines: str) -> Sequence[Entry]:
    return entries(rows(lines))


def book(lines: str) -> Book:
    return read_book(read(lines))
