"""Which periods are in the shop, kept beside its state: loads compose, and the audit knows what to expect."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path

from infra.retail.plan import Book, Period
from infra.retail.requests import call
from infra.retail.steps import Step

ONE_DAY = timedelta(days=1)


def read_loaded(home: Path) -> Sequence[Period]:
    """The periods loaded so far, in the order of loading."""
    file = _file(home)
    rows = json.loads(file.read_text()) if file.exists() else []
    return [Period(*(date.fromisoformat(row[name]) for name in ("first", "last", "since"))) for row in rows]


def record_loaded(home: Path, period: Period) -> None:
    """Remember a load that was acknowledged in full."""
    known = list(read_loaded(home))
    if period in known:
        return
    rows = [
        {"first": str(each.first), "last": str(each.last), "since": str(each.since)}
        for each in [*known, period]
    ]
    home.mkdir(parents=True, exist_ok=True)
    fresh = _file(home).with_suffix(".new")
    fresh.write_text(json.dumps(rows, indent=1))
    fresh.replace(_file(home))


def known_since(first: date, loaded: Iterable[Period]) -> date:
    """The first day from which on every day up to `first` is loaded: of orders since then, the shop knows."""
    days = {
        period.first + ONE_DAY * count
        for period in loaded
        for count in range((period.last - period.first).days + 1)
    }
    while first - ONE_DAY in days:
        first -= ONE_DAY
    return first


def steps_of(book: Book, loaded: Iterable[Period]) -> Iterator[Step]:
    """Every step of these periods once, each order's in order."""
    sent: set[tuple[str, str]] = set()
    for period in sorted(loaded, key=lambda each: (each.first, each.since)):
        for step in book.load(period).steps():
            request = call(step)
            if (request.path, request.key) not in sent:
                sent.add((request.path, request.key))
                yield step


def _file(home: Path) -> Path:
    return home / "loaded.json"
