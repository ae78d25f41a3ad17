"""Compares the marts with the retail file, figure by figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow.parquet as pq

from infra.base.errors import DaybookError
from infra.lab.source_check.figures import FIGURES, Figures, Row, micros
from infra.lab.source_check.source import InvoiceSource, LoadedSource

NEEDED = (
    *("orders", "daily_revenue", "order_funnel", "stock_ledger", "stockouts", "customers"),
    *("customer_cohorts", "guests", "customer_skus", "basket_pairs", "saga_health"),
)


class Marts(Protocol):
    """The rows of each mart, by its name."""

    def __getitem__(self, mart: str, /) -> Sequence[Row]: ...


class NotTogether(DaybookError):
    """Marts are missing, or were not read to the same offsets, or not to the end of the log."""


class Outputs:
    """The folder of `daybook analytics run`. Raises NotTogether."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        absent = [name for name in NEEDED if not (folder / name / "_log.json").is_file()]
        if absent:
            raise NotTogether(f"not in {folder}: {', '.join(absent)}; `./daybook analytics run` makes them")
        logs = [msgspec.json.decode((folder / name / "_log.json").read_bytes()) for name in NEEDED]
        if any(log["as_of"] for log in logs):
            raise NotTogether("a mart is of an earlier moment: the file is compared with all that was loaded")
        if any(log["ends"] != logs[0]["ends"] for log in logs):
            raise NotTogether("the marts were read to different offsets: run them together")

    def __getitem__(self, mart: str) -> Sequence[Row]:
        rows: list[Row] = pq.read_table(self._folder / mart).to_pylist()
        return rows


SHOWN = 5


@dataclass(frozen=True)
class Check:
    """One figure, compared key by key; `first` shows the first keys that differ, with both values."""

    mart: str
    figure: str
    keys: int
    differing: int
    first: Sequence[str]


def check(source: InvoiceSource, marts: Marts, first: date, last: date) -> list[Check]:
    """Compare every figure that must agree exactly, for the days that are loaded."""
    days = source.between(first, last)
    orders = marts["orders"]
    cancelled = {row["order_id"]: row for row in orders if row["cancelled_at"] is not None}
    loaded = LoadedSource(source, days, frozenset(cancelled))
    checks = [_cancellations(days, cancelled), _refunds(loaded, marts["customer_skus"])]
    for mart, figure, by_file, by_mart in FIGURES:
        checks.append(_compare(mart, figure, by_file(loaded), by_mart(marts[mart])))
    return checks


def _compare(mart: str, figure: str, by_file: Figures, by_mart: Figures) -> Check:
    keys = by_file.keys() | by_mart.keys()
    wrong = sorted((key for key in keys if by_file.get(key) != by_mart.get(key)), key=str)
    first = [f"{key}: file {by_file.get(key)}, mart {by_mart.get(key)}" for key in wrong[:SHOWN]]
    return Check(mart, figure, len(keys), len(wrong), first)


def _cancellations(source: InvoiceSource, cancelled: Mapping[str, Row]) -> Check:
    """The loader derives which order a note cancels; a note of that customer, time and goods must exist."""
    notes = {(note.customer, note.at, frozenset(note.units.items())) for note in source.credits.values()}
    proven = {}
    for number, row in cancelled.items():
        sale = source.sales.get(number)
        mirrored = sale and (sale.customer, row["cancelled_at"], frozenset(sale.by_sku().items()))
        proven[number] = mirrored in notes
    return _compare(
        "orders", "a credit note for each cancelled order", dict.fromkeys(cancelled, True), proven
    )


def _refunds(loaded: LoadedSource, rows: Sequence[Row]) -> Check:
    """A refund is at a price that the customer has paid: exactly it, where there was only one."""
    paid: dict[tuple[str | None, str], set[int]] = {}
    for _, sale in loaded.sold():
        for sku, _, price in sale.goods:
            paid.setdefault((sale.customer, sku), set()).add(micros(price))
    by_file, by_mart = {}, {}
    for row in rows:
        if units := row["returned_units"]:
            key = (row["customer_id"], row["sku"])
            lowest, highest = (units * bound(paid.get(key, {0})) for bound in (min, max))
            by_mart[key] = row["refund"]
            by_file[key] = min(max(row["refund"], lowest), highest)
    return _compare("customer_skus", "refunds at the price paid", by_file, by_mart)
