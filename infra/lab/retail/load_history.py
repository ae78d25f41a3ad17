"""Which periods are in the shop, kept beside its state: loads compose, and the audit knows what to expect."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path

import msgspec

from infra.base.files import write_whole
from infra.lab.retail.plan import Book, LoadPlan, Period
from infra.lab.retail.steps import Step, request_of

ONE_DAY = timedelta(days=1)
RETRY_WINDOW = timedelta(hours=20)
"""For how long a repeated step certainly gets its recorded outcome; the shop's own window is 24 hours."""


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
    """Record a load whose every command has an outcome. A repeat within the window does not make it younger."""
    loaded = read_loaded(home)
    if any(load.period == period for load in loaded):
        return
    home.mkdir(parents=True, exist_ok=True)
    write_whole(_file(home), msgspec.json.encode([*loaded, Loaded(period, at)]))


def loaded_since(first: date, loaded: Iterable[Loaded]) -> date:
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
    for period in sorted(periods, key=lambda period: (period.first, period.since)):
        for step in book.load(period).steps():
            if _name(step) not in sent:
                sent.add(_name(step))
                yield step


def without_expired(book: Book, plan: LoadPlan, loaded: Iterable[Loaded], now: datetime) -> LoadPlan:
    """The plan without what was sent so long ago that the shop may execute a repeat as a new command."""
    old = [load.period for load in loaded if now - load.at > RETRY_WINDOW]
    expired = {_name(step) for step in steps_of(book, old)}
    chains = (tuple(step for step in chain if _name(step) not in expired) for chain in plan.chains)
    return replace(
        plan,
        deliveries=tuple(step for step in plan.deliveries if _name(step) not in expired),
        adjustments=tuple(step for step in plan.adjustments if _name(step) not in expired),
        chains=tuple(chain for chain in chains if chain),
    )


def _name(step: Step) -> tuple[str, str]:
    request = request_of(step)
    return request.path, request.key


def _file(home: Path) -> Path:
    return home / "loaded.json"
