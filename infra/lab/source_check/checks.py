"""Figures that the marts and the file must have in common, one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from infra.lab.source_check.figures import Figures, micros
from infra.lab.source_check.in_common import FIGURES
from infra.lab.source_check.outputs import Marts, Row
from infra.lab.source_check.source import InvoiceSource, Known

NAMED = 5


@dataclass(frozen=True)
class Check:
    """One figure by key: how many keys, and the first that differ, with what the file and the mart say."""

    mart: str
    figure: str
    keys: int
    differing: int
    first: Sequence[str]


def check(source: InvoiceSource, marts: Marts, first: date, last: date) -> list[Check]:
    """Everything that must agree exactly, for the days that are loaded."""
    days = source.between(first, last)
    orders = marts["orders"]
    cancelled = {row["order_id"]: row for row in orders if row["cancelled_at"] is not None}
    known = Known(source, days, frozenset(cancelled))
    found = [_cancellations(days, cancelled), _refunds(known, marts["customer_skus"])]
    for mart, figure, by_file, by_mart in FIGURES:
        found.append(_compare(mart, figure, by_file(known), by_mart(marts[mart])))
    return found


def _compare(mart: str, figure: str, by_file: Figures, by_mart: Figures) -> Check:
    keys = by_file.keys() | by_mart.keys()
    wrong = sorted((key for key in keys if by_file.get(key) != by_mart.get(key)), key=str)
    first = [f"{key}: file {by_file.get(key)}, mart {by_mart.get(key)}" for key in wrong[:NAMED]]
    return Check(mart, figure, len(keys), len(wrong), first)


def _cancellations(source: InvoiceSource, cancelled: Mapping[str, Row]) -> Check:
    """Which order a note is about is derived; but a note of that customer, time and goods must exist."""
    notes = {(note.customer, note.at, frozenset(note.units.items())) for note in source.credits.values()}
    proven = {}
    for number, row in cancelled.items():
        sale = source.sales.get(number)
        mirrored = sale and (sale.customer, row["cancelled_at"], frozenset(sale.by_sku().items()))
        proven[number] = mirrored in notes
    return _compare(
        "orders", "a credit note for each cancelled order", dict.fromkeys(cancelled, True), proven
    )


def _refunds(known: Known, rows: Sequence[Row]) -> Check:
    """A refund is at a price that the customer has paid: exactly it, where there was only one."""
    paid: dict[tuple[str | None, str], set[int]] = {}
    for _, sale in known.sold():
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
