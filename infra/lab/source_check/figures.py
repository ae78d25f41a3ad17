"""Figures of orders and of who places them, from the file. Money is micros, days are of business time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from infra.lab.source_check.outputs import Row
from infra.lab.source_check.source import NEVER_STOCKED, Known

Figures = Mapping[Any, Any]
ByFile = Callable[[Known], Figures]
ByMart = Callable[[Sequence[Row]], Figures]


def micros(pounds: Decimal) -> int:
    exact = pounds * 1_000_000
    assert exact == int(exact), f"£{pounds} has more than six places"
    return int(exact)


def columns(key: str | tuple[str, ...], *values: str) -> ByMart:
    """The mart's rows by `key`, each the tuple of `values`."""
    keys = (key,) if isinstance(key, str) else key

    def read(rows: Sequence[Row]) -> Figures:
        return {tuple(row[name] for name in keys): tuple(row[name] for name in values) for row in rows}

    return read


def month(day: date) -> date:
    return day.replace(day=1)


def added(pairs: Iterable[tuple[Any, tuple[int, ...]]]) -> Figures:
    """The sums by key."""
    sums: dict[Any, tuple[int, ...]] = {}
    for key, amounts in pairs:
        before = sums.get(key, (0,) * len(amounts))
        sums[key] = tuple(a + b for a, b in zip(before, amounts, strict=True))
    return sums


def not_zero(figures: Figures) -> Figures:
    return {key: amounts for key, amounts in figures.items() if any(amounts)}


def ledger(key: Callable[[Row], tuple[Any, ...]], units: Callable[[Row], int]) -> ByMart:
    """The ledger's sums by some key."""
    return lambda rows: not_zero(added((key(row), (units(row),)) for row in rows))


def sales_of_orders(known: Known) -> Figures:
    return {
        (number,): (
            *(sale.customer, sale.country, sale.at, sale.units, micros(sale.gross)),
            not sale.rejected and number not in known.cancelled,
        )
        for number, sale in known.source.sales.items()
    }


def sales_by_day(known: Known) -> Figures:
    return added(((sale.day, sale.country), (1, sale.units, micros(sale.gross))) for _, sale in known.sold())


def sales_of_mart(rows: Sequence[Row]) -> Figures:
    """Without the days on which something only came back."""
    sold = [row for row in rows if row["orders"] or row["gross"]]
    return {(row["day"], row["country"]): (row["orders"], row["units"], row["gross"]) for row in sold}


def funnel(known: Known) -> Figures:
    return added(
        ((sale.day,), (1, int(sale.rejected), int(number in known.cancelled), 0))
        for number, sale in known.source.sales.items()
    )


def reservations(known: Known) -> Figures:
    return added(
        ((sale.day, "rejected" if sale.rejected else "confirmed"), (1, len(sale.by_sku())))
        for sale in known.source.sales.values()
    )


def reservations_of_mart(rows: Sequence[Row]) -> Figures:
    kept = [row for row in rows if row["step"] == "reserve"]
    return {(row["day"], row["outcome"]): (row["conversations"], row["skus"]) for row in kept}


def missed(known: Known) -> Figures:
    return added(
        ((sku,), (1, sale.by_sku()[sku], micros(value)))
        for sale in known.source.sales.values()
        for sku, value in sale.value_by_sku().items()
        if sku in NEVER_STOCKED
    )


def of_customers(known: Known) -> Figures:
    sums = added(
        ((sale.customer,), (1, sale.units, micros(sale.gross))) for _, sale in known.sold() if sale.customer
    )
    days: defaultdict[Any, list[date]] = defaultdict(list)
    for _, sale in known.sold():
        days[sale.customer,].append(sale.day)
    return {key: (min(days[key]), max(days[key]), *amounts) for key, amounts in sums.items()}


def cohorts(known: Known) -> Figures:
    named = [sale for _, sale in known.sold() if sale.customer]
    first: dict[str | None, date] = {}
    for sale in named:
        first[sale.customer] = min(first.get(sale.customer, sale.day), sale.day)
    buyers: defaultdict[Any, set[str | None]] = defaultdict(set)
    money: Counter[Any] = Counter()
    for sale in named:
        begun = month(first[sale.customer])
        later = (sale.day.year - begun.year) * 12 + sale.day.month - begun.month
        buyers[begun, later].add(sale.customer)
        money[begun, later] += micros(sale.gross)
    return {key: (len(customers), money[key]) for key, customers in buyers.items()}


def of_guests(known: Known) -> Figures:
    sold = (sale for _, sale in known.sold() if sale.customer is None)
    return added(((month(sale.day),), (1, sale.units, micros(sale.gross))) for sale in sold)
