"""The figures that the marts and the retail file must have in common, each counted from both.

Each function counts a figure from the file; its decorator names the mart, the figure, and how the mart has it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import combinations
from typing import Any

from analytics.marts.customers import LEAST_BASKETS, LEAST_SUPPORT, MOST_SKUS
from infra.lab.source_check.source import NEVER_STOCKED, Credit, InvoiceSource, LoadedSource, Sale

Row = Mapping[str, Any]
Figures = Mapping[Any, Any]
ByFile = Callable[[LoadedSource], Figures]
ByMart = Callable[[Sequence[Row]], Figures]
FIGURES: list[tuple[str, str, ByFile, ByMart]] = []


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


def sales_of_mart(rows: Sequence[Row]) -> Figures:
    """Without the days on which something only came back."""
    sold = [row for row in rows if row["orders"] or row["gross"]]
    return {(row["day"], row["country"]): (row["orders"], row["units"], row["gross"]) for row in sold}


def reservations_of_mart(rows: Sequence[Row]) -> Figures:
    kept = [row for row in rows if row["step"] == "reserve"]
    return {(row["day"], row["outcome"]): (row["conversations"], row["skus"]) for row in kept}


def stayed_out(row: Row) -> int:
    """Units that are reserved or have left: reserved and not released."""
    return int(row["reserved"] - row["released"])


def figure(mart: str, name: str, by_mart: ByMart) -> Callable[[ByFile], ByFile]:
    """Declares the function that counts this figure from the file."""

    def declare(by_file: ByFile) -> ByFile:
        FIGURES.append((mart, name, by_file, by_mart))
        return by_file

    return declare


@figure(
    "orders",
    "customer, country, time, units, gross, whether sold",
    columns("order_id", "customer_id", "country", "placed_at", "units", "gross", "sold"),
)
def sales_of_orders(loaded: LoadedSource) -> Figures:
    return {
        (number,): (
            *(sale.customer, sale.country, sale.at, sale.units, micros(sale.gross)),
            not sale.rejected and number not in loaded.cancelled,
        )
        for number, sale in loaded.source.sales.items()
    }


@figure("daily_revenue", "orders, units, gross by day and country", sales_of_mart)
def sales_by_day(loaded: LoadedSource) -> Figures:
    return added(((sale.day, sale.country), (1, sale.units, micros(sale.gross))) for _, sale in loaded.sold())


@figure(
    "order_funnel",
    "placed, rejected, cancelled, expired by day",
    columns("day", "placed", "rejected", "cancelled", "expired"),
)
def funnel(loaded: LoadedSource) -> Figures:
    return added(
        ((sale.day,), (1, int(sale.rejected), int(number in loaded.cancelled), 0))
        for number, sale in loaded.source.sales.items()
    )


@figure("saga_health", "reservations by day and outcome, SKUs", reservations_of_mart)
def reservations(loaded: LoadedSource) -> Figures:
    return added(
        ((sale.day, "rejected" if sale.rejected else "confirmed"), (1, len(sale.by_sku())))
        for sale in loaded.source.sales.values()
    )


@figure("stockouts", "orders, units, money by SKU", columns("sku", "short", "units", "lost"))
def missed(loaded: LoadedSource) -> Figures:
    return added(
        ((sku,), (1, sale.by_sku()[sku], micros(value)))
        for sale in loaded.source.sales.values()
        for sku, value in sale.value_by_sku().items()
        if sku in NEVER_STOCKED
    )


@figure(
    "customers",
    "first and last day, orders, units, gross",
    columns("customer_id", "first_day", "last_day", "orders", "units", "gross"),
)
def of_customers(loaded: LoadedSource) -> Figures:
    sums = added(
        ((sale.customer,), (1, sale.units, micros(sale.gross))) for _, sale in loaded.sold() if sale.customer
    )
    days: defaultdict[Any, list[date]] = defaultdict(list)
    for _, sale in loaded.sold():
        days[sale.customer,].append(sale.day)
    return {key: (min(days[key]), max(days[key]), *amounts) for key, amounts in sums.items()}


@figure(
    "customer_cohorts",
    "customers, gross by cohort and month",
    columns(("cohort", "months_later"), "customers", "gross"),
)
def cohorts(loaded: LoadedSource) -> Figures:
    named = [sale for _, sale in loaded.sold() if sale.customer]
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


@figure("guests", "orders, units, gross by month", columns("month", "orders", "units", "gross"))
def of_guests(loaded: LoadedSource) -> Figures:
    sold = (sale for _, sale in loaded.sold() if sale.customer is None)
    return added(((month(sale.day),), (1, sale.units, micros(sale.gross))) for sale in sold)


@figure(
    "customer_skus", "units, money by customer and SKU", columns(("customer_id", "sku"), "units", "spent")
)
def bought(loaded: LoadedSource) -> Figures:
    """By customer and SKU: units, and the micros spent."""
    return added(
        ((sale.customer, sku), (units, micros(units * price)))
        for _, sale in loaded.sold()
        if sale.customer
        for sku, units, price in sale.goods
    )


@figure(
    "customer_skus",
    "units that came back, by customer and SKU",
    lambda rows: not_zero(columns(("customer_id", "sku"), "returned_units")(rows)),
)
def given_back(loaded: LoadedSource) -> Figures:
    """By customer and SKU: the units that came back.

    The loader chooses to which order, not how many: those of the notes, as far as the customer has bought as many and
    not yet returned them.
    """
    sales = [sale for sale in loaded.source.sales.values() if not sale.rejected]
    having: Counter[Any] = Counter()
    back: Counter[Any] = Counter()
    entries: list[Sale | Credit] = [*sales, *loaded.source.credits.values()]
    for entry in sorted(entries, key=lambda entry: (entry.at, entry.position)):
        if isinstance(entry, Sale):
            having.update({(entry.customer, sku): units for sku, units in entry.by_sku().items()})
        else:
            for sku, units in entry.units.items():
                taken = min(units, having[entry.customer, sku])
                having[entry.customer, sku] -= taken
                back[entry.customer, sku] += taken
    for number in loaded.cancelled & loaded.source.sales.keys():
        sale = loaded.source.sales[number]
        back.subtract({(sale.customer, sku): units for sku, units in sale.by_sku().items()})
    return not_zero({key: (units,) for key, units in back.items()})


@figure(
    "stock_ledger",
    "received by SKU and month",
    ledger(lambda row: (row["sku"], month(row["day"])), lambda row: row["received"]),
)
def delivered(loaded: LoadedSource) -> Figures:
    """By SKU and month: the units that the whole month takes, where the loaded days take any of them."""
    needed, touched = _taken(loaded.whole), _taken(loaded.source)
    return {(sku, begun): (needed[sku, begun],) for sku, begun in touched if sku not in NEVER_STOCKED}


def _taken(source: InvoiceSource) -> Counter[tuple[str, date]]:
    units: Counter[tuple[str, date]] = Counter()
    for sale in source.sales.values():
        units.update({(sku, month(sale.day)): count for sku, count in sale.by_sku().items()})
    for day, sku, count in source.counts:
        units[sku, month(day)] -= min(count, 0)
    return +units


@figure(
    "stock_ledger",
    "adjusted by SKU and day",
    ledger(lambda row: (row["sku"], row["day"]), lambda row: row["adjusted"]),
)
def counted(loaded: LoadedSource) -> Figures:
    stocked = (count for count in loaded.source.counts if count[1] not in NEVER_STOCKED)
    return not_zero(added(((sku, day), (units,)) for day, sku, units in stocked))


@figure("stock_ledger", "reserved and kept, by SKU", ledger(lambda row: (row["sku"],), stayed_out))
def taken_out(loaded: LoadedSource) -> Figures:
    return added(((sku,), (units,)) for _, sale in loaded.sold() for sku, units, _ in sale.goods)


@figure("stock_ledger", "returned by SKU", ledger(lambda row: (row["sku"],), lambda row: row["returned"]))
def taken_back(loaded: LoadedSource) -> Figures:
    return added(((sku,), units) for (_, sku), units in given_back(loaded).items())


@figure(
    "basket_pairs",
    "baskets of one, of the other, of both",
    columns(("sku_a", "sku_b"), "baskets", "baskets_a", "baskets_b", "baskets_both"),
)
def pairs(loaded: LoadedSource) -> Figures:
    """How many baskets contain both articles, of those that the mart counts."""
    sold = [sale.by_sku().keys() for _, sale in loaded.sold()]
    baskets = [skus for skus in sold if len(skus) <= MOST_SKUS]
    least = max(LEAST_BASKETS, LEAST_SUPPORT * len(baskets))
    single = Counter(sku for skus in baskets for sku in skus)
    both: Counter[tuple[str, str]] = Counter()
    for skus in baskets:
        both.update(combinations(sorted(sku for sku in skus if single[sku] >= least), 2))
    return {
        (a, b): (len(baskets), single[a], single[b], count)
        for (a, b), count in both.items()
        if count >= least
    }
