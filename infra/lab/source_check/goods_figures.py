"""Figures of articles, from the file: who has them, what the stock did, what lies in one basket."""

from collections import Counter
from datetime import date
from itertools import combinations
from typing import Any

from analytics.marts.basket_pairs import LEAST_BASKETS, LEAST_SUPPORT, MOST_SKUS
from infra.lab.source_check.figures import Figures, added, micros, month, not_zero
from infra.lab.source_check.outputs import Row
from infra.lab.source_check.source import NEVER_STOCKED, Credit, InvoiceSource, Known, Sale


def bought(known: Known) -> Figures:
    """By customer and SKU: units, and the micros spent."""
    return added(
        ((sale.customer, sku), (units, micros(units * price)))
        for _, sale in known.sold()
        if sale.customer
        for sku, units, price in sale.goods
    )


def given_back(known: Known) -> Figures:
    """By customer and SKU: the units that came back. To which order is the loader's choice, how many is not:
    what the notes say, as far as the customer has bought and not yet given back as many before."""
    sales = [sale for sale in known.source.sales.values() if not sale.rejected]
    having: Counter[Any] = Counter()
    back: Counter[Any] = Counter()
    entries: list[Sale | Credit] = [*sales, *known.source.credits.values()]
    for entry in sorted(entries, key=lambda entry: (entry.at, entry.place)):
        if isinstance(entry, Sale):
            having.update({(entry.customer, sku): units for sku, units in entry.by_sku().items()})
        else:
            for sku, units in entry.units.items():
                taken = min(units, having[entry.customer, sku])
                having[entry.customer, sku] -= taken
                back[entry.customer, sku] += taken
    for number in known.cancelled & known.source.sales.keys():
        sale = known.source.sales[number]
        back.subtract({(sale.customer, sku): units for sku, units in sale.by_sku().items()})
    return not_zero({key: (units,) for key, units in back.items()})


def delivered(known: Known) -> Figures:
    """By SKU and month: what the whole month takes, where the loaded days take any of it."""
    needed, touched = _taken(known.whole), _taken(known.source)
    return {(sku, begun): (needed[sku, begun],) for sku, begun in touched if sku not in NEVER_STOCKED}


def _taken(source: InvoiceSource) -> Counter[tuple[str, date]]:
    units: Counter[tuple[str, date]] = Counter()
    for sale in source.sales.values():
        units.update({(sku, month(sale.day)): count for sku, count in sale.by_sku().items()})
    for day, sku, count in source.counts:
        units[sku, month(day)] -= min(count, 0)
    return +units


def counted(known: Known) -> Figures:
    stocked = (count for count in known.source.counts if count[1] not in NEVER_STOCKED)
    return not_zero(added(((sku, day), (units,)) for day, sku, units in stocked))


def taken_out(known: Known) -> Figures:
    return added(((sku,), (units,)) for _, sale in known.sold() for sku, units, _ in sale.goods)


def taken_back(known: Known) -> Figures:
    return added(((sku,), units) for (_, sku), units in given_back(known).items())


def pairs(known: Known) -> Figures:
    """How many baskets hold both, of those that the mart looks at."""
    found = [sale.by_sku().keys() for _, sale in known.sold()]
    baskets = [skus for skus in found if len(skus) <= MOST_SKUS]
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


def stayed_out(row: Row) -> int:
    """What is held or has left: reserved and not released."""
    return int(row["reserved"] - row["released"])
