"""Sales per day, country and currency, by business time: what each order's events add to which day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, NamedTuple

from contracts.order.events import OrderCancelled, OrderConfirmed, OrderReturned
from services.kernel.record.envelope import Metadata

_DAY_ONE = date(1970, 1, 1)
_MICROS_A_DAY = 86_400_000_000


class Day(NamedTuple):
    """The grain."""

    day: date
    country: str
    currency: str


class Change(NamedTuple):
    """What is added to a day: orders and units, money in micros. Net is gross − returned."""

    day: Day
    orders: int = 0
    units: int = 0
    gross: int = 0
    returned: int = 0


@dataclass(frozen=True)
class Sales:
    """`changes` are those that are not written yet: a row that was loaded for folding has none."""

    changes: tuple[Change, ...] = ()


def fold(row: Sales | None, event: Any, _: Metadata) -> Sales:
    """The order's sales after the event."""
    before, change = row or Sales(), change_of(event)
    return before if change is None else Sales((*before.changes, change))


def change_of(event: Any) -> Change | None:
    """A confirmed order counts on its own day and is taken back from that day when it is cancelled.

    A return counts on the day of the return.
    """
    match event:
        case OrderConfirmed(occurred_at=at, country=country, currency=currency, units=units, gross=gross):
            return Change(Day(day_of(at), country, currency), 1, units, gross)
        case OrderCancelled(confirmed=True, placed_at=at, country=country, currency=currency):
            return Change(Day(day_of(at), country, currency), -1, -event.units, -event.gross)
        case OrderReturned(occurred_at=at, country=country, currency=currency, refund=refund):
            return Change(Day(day_of(at), country, currency), returned=refund)
        case _:
            return None


def day_of(micros: int) -> date:
    """The day, in UTC."""
    return _DAY_ONE + timedelta(days=micros // _MICROS_A_DAY)
