"""Which periods are in the shop, kept beside its state: loads compose, and the audit knows what to expect."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path

import msgspec

from infra.lab.retail.plan import Book, LoadPlan, Period
from infra.lab.retail.requests import call
from infra.lab.retail.steps import Step

ONE_DAY = timedelta(days=1)
REMEMBERED = timedelta(hours=20)
"""For how long a repeated step surely gets its first answer again; the shop's retry window is 24 hours."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A period that was loaded in full, and when (UTC)."""

    period: Period
    at: datetime


def read_loaded(home: Path) -> Sequence[Loaded]:
    """The loads so far, the oldest first."""
    file = _file(home)
    return msgspec.json.decode(file.read_bytes(), type=list[Loaded]) if file.exists() else []


def record_loaded(home: Path, period: Period, at: datetime) -> None:
    """Remember a load that was answered in full. A repeat within the window does not make it younger."""
    known = read_loaded(home)
    if any(load.period == period for load in known):
        return
    home.mkdir(parents=True, exist_ok=True)
    fresh = _file(home).with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode([*known, Loaded(period, at)]))
    fresh.replace(_file(home))


def known_since(first: date, loaded: Iterable[Loaded]) -> date:
    """The first day from which on every day up to `first` is loaded: of orders since then, the shop knows."""
    days = {
        load.period.first + ONE_DAY * count
        for load in loaded
        for count in range((load.period.last - load.period.first).days + 1)
    }
    while first - ONE_DAY in days:
        first -= ONE_DAY
    return first


def steps_of(book: Book, periods: Iterable[Period]) -> Iterator[Step]:
    """Every step of these periods once, each order's in order."""
    sent: set[tuple[str, str]] = set()
    for period in sorted(periods, key=lambda each: (each.first, each.since)):
        for step in book.load(period).steps():
            if _name(step) not in sent:
                sent.add(_name(step))
                yield step


def without_forgotten(book: Book, load: LoadPlan, loaded: Iterable[Loaded], now: datetime) -> LoadPlan:
    """The load without what was sent so long ago that the shop may take a repeat for something new."""
    old = [each.period for each in loaded if now - each.at > REMEMBERED]
    forgotten = {_name(step) for step in steps_of(book, old)}
    chains = (
        replace(chain, steps=tuple(step for step in chain.steps if _name(step) not in forgotten))
        for chain in load.chains
    )
    return replace(
        load,
        deliveries=tuple(step for step in load.deliveries if _name(step) not in forgotten),
        adjustments=tuple(step for step in load.adjustments if _name(step) not in forgotten),
        chains=tuple(chain for chain in chains if chain.steps),
    )


def _name(step: Step) -> tuple[str, str]:
    request = call(step)
    return request.path, request.key


def _file(home: Path) -> Path:
    return home / "loaded.json"
