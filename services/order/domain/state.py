"""The states of an order. Plain types only: a snapshot is one of these classes in MessagePack.

```
NotPlaced → Placed → Confirmed → Shipped
               ├→ Rejected │
               ├→ Expired  │
               └→ Cancelled┘
```
Each state keeps only what later commands need: settled orders stay in memory for a long time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class LineState(NamedTuple):
    """Units of one SKU at one price (micros). Several lines may have the same SKU."""

    sku: str
    quantity: int
    unit_price: int


class Owed(NamedTuple):
    """A stock movement that is pending: sent to inventory, without an outcome. `step` is release, issue or return;
    `number` is the return's number, else 0; `at` is when the order required it (micros UTC, business time)."""

    step: str
    sku: str
    number: int
    quantity: int
    at: int


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """The order has no events."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Waits for reservations: `unanswered` are the SKUs without an outcome. Times are micros UTC (`settle_by`:
    recorded time, the others business time), money is micros."""

    order_id: str
    placed_at: int
    country: str
    currency: str
    gross: int
    lines: tuple[LineState, ...]
    settle_by: int | None
    unanswered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Every SKU is reserved."""

    order_id: str
    placed_at: int
    country: str
    currency: str
    gross: int
    lines: tuple[LineState, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """At least one SKU was short."""

    order_id: str
    owed: tuple[Owed, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Cancelled by a person before shipment, or after a lost reservation."""

    order_id: str
    owed: tuple[Owed, ...]


@dataclass(frozen=True, slots=True)
class Expired:
    """Not settled in time."""

    order_id: str
    owed: tuple[Owed, ...]


@dataclass(frozen=True, slots=True)
class Shipped:
    """Shipped. `lines` are what the customer still has; returned lines stay, with quantity 0."""

    order_id: str
    country: str
    currency: str
    carrier: str | None
    reference: str | None
    lines: tuple[LineState, ...]
    returns: int
    owed: tuple[Owed, ...]


Order: TypeAlias = NotPlaced | Placed | Confirmed | Rejected | Cancelled | Expired | Shipped
STATES: tuple[type[Order], ...] = (NotPlaced, Placed, Confirmed, Rejected, Cancelled, Expired, Shipped)


def units_by_sku(lines: Iterable[LineState]) -> dict[str, int]:
    """Returns the units of each SKU, in the order of its first line."""
    units: dict[str, int] = {}
    for line in lines:
        units[line.sku] = units.get(line.sku, 0) + line.quantity
    return units


def units_of(lines: Iterable[LineState]) -> int:
    return sum(line.quantity for line in lines)


def take_units(lines: tuple[LineState, ...], units: Mapping[str, int]) -> tuple[LineState, ...]:
    """Returns the lines without `units` of each SKU, taken in order. An unchanged line is the same object."""
    missing = dict(units)
    left = []
    for line in lines:
        taken = min(line.quantity, missing.get(line.sku, 0))
        if taken:
            missing[line.sku] -= taken
            line = line._replace(quantity=line.quantity - taken)
        left.append(line)
    return tuple(left)


def status(order: Order) -> str:
    """Returns one word: the state's name, partly_returned, returned, or unknown if there are no events."""
    match order:
        case NotPlaced():
            return "unknown"
        case Shipped(returns=0):
            return "shipped"
        case Shipped(lines=lines):
            return "partly_returned" if units_of(lines) else "returned"
        case _:
            return type(order).__name__.lower()
