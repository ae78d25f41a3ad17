"""The conversations that orders have with stock: what each order waits for, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from contracts.order.events import (
    MovementsRecorded,
    OrderCancelled,
    OrderConfirmed,
    OrderExpired,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
    ReservationsRecorded,
)
from services.kernel.record.envelope import Metadata


class Awaited(NamedTuple):
    """An answer that is awaited from stock.

    `step` is reserve, release, issue or return (with its number, else 0); `since` is when it was asked for:
    recorded time, micros UTC.
    """

    step: str
    sku: str
    return_number: int
    since: int


@dataclass(frozen=True)
class Conversation:
    awaits: tuple[Awaited, ...] = ()

    @property
    def since(self) -> int | None:
        """The oldest; None when nothing is awaited."""
        return min((awaited.since for awaited in self.awaits), default=None)


def fold(row: Conversation | None, event: Any, metadata: Metadata) -> Conversation:
    """The conversation after the event."""
    return Conversation(after(row.awaits if row else (), event, metadata.recorded_at))


def after(awaits: tuple[Awaited, ...], event: Any, at: int) -> tuple[Awaited, ...]:
    match event:
        case OrderPlaced(lines=lines):
            return asked("reserve", dict.fromkeys(line.sku for line in lines), at)
        case ReservationsRecorded(reserved=reserved):
            return tuple(one for one in awaits if one.step != "reserve" or one.sku not in reserved)
        case OrderConfirmed():
            return without_reservations(awaits)
        case OrderRejected(release=skus) | OrderCancelled(release=skus) | OrderExpired(release=skus):
            return without_reservations(awaits) + asked("release", skus, at)
        case OrderShipped(issue=skus):
            return awaits + asked("issue", skus, at)
        case OrderReturned(lines=lines, return_number=number):
            return awaits + asked("return", dict.fromkeys(line.sku for line in lines), at, number)
        case MovementsRecorded(movements=movements):
            answered = {(one.step, one.sku, one.return_number) for one in movements}
            return tuple(one for one in awaits if one[:3] not in answered)
        case _:
            return awaits


def asked(step: str, skus: Iterable[str], at: int, return_number: int = 0) -> tuple[Awaited, ...]:
    return tuple(Awaited(step, sku, return_number, at) for sku in skus)


def without_reservations(awaits: tuple[Awaited, ...]) -> tuple[Awaited, ...]:
    return tuple(awaited for awaited in awaits if awaited.step != "reserve")
