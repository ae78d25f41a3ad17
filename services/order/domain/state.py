"""The states of an order, and the next state after each event. `evolve` contains no rules: an event is a fact.

Plain types only: a snapshot is one of these classes in MessagePack.

```
NotPlaced → Placed → Confirmed → Shipped
               ├→ Rejected │
               ├→ Expired  │
               └→ Cancelled┘
```
Each state keeps only what later commands need: settled orders stay in memory for a long time. `customer_id` is whose
order it is; None: nobody's in particular.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from sys import intern
from typing import NamedTuple, TypeAlias

from contracts.order.events import (
    MovementsRecorded,
    OrderCancelled,
    OrderConfirmed,
    OrderEvent,
    OrderExpired,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
    ReservationsRecorded,
)


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
    customer_id: str | None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Every SKU is reserved."""

    order_id: str
    placed_at: int
    country: str
    currency: str
    gross: int
    lines: tuple[LineState, ...]
    customer_id: str | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """At least one SKU was short."""

    order_id: str
    owed: tuple[Owed, ...]
    customer_id: str | None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Cancelled by a person before shipment, or after a lost reservation."""

    order_id: str
    owed: tuple[Owed, ...]
    customer_id: str | None


@dataclass(frozen=True, slots=True)
class Expired:
    """Not settled in time."""

    order_id: str
    owed: tuple[Owed, ...]
    customer_id: str | None


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
    customer_id: str | None


Order: TypeAlias = NotPlaced | Placed | Confirmed | Rejected | Cancelled | Expired | Shipped
STATES: tuple[type[Order], ...] = (NotPlaced, Placed, Confirmed, Rejected, Cancelled, Expired, Shipped)


def evolve(order: Order, event: OrderEvent) -> Order:
    """Returns the order after `event`. Raises AssertionError if the event cannot follow: the log is damaged."""
    match order, event:
        case NotPlaced(), OrderPlaced():
            return _placed(event)
        case Placed(), ReservationsRecorded():
            return _reserved(order, event)
        case Placed(), OrderConfirmed():
            return _confirmed(order)
        case Placed(), OrderRejected():
            return Rejected(event.order_id, _releases(order, event), order.customer_id)
        case Placed() | Confirmed(), OrderCancelled():
            return Cancelled(event.order_id, _releases(order, event), order.customer_id)
        case Placed(), OrderExpired():
            return Expired(event.order_id, _releases(order, event), order.customer_id)
        case Confirmed(), OrderShipped():
            return _shipped(order, event)
        case Shipped(), OrderReturned():
            return _returned(order, event)
        case Rejected() | Cancelled() | Expired() | Shipped(), MovementsRecorded():
            return _moved(order, event)
        case _:
            raise AssertionError(f"{event.TYPE} cannot follow the state {type(order).__name__}")


def _placed(event: OrderPlaced) -> Placed:
    """Interns the words that many orders share."""
    lines = tuple(LineState(intern(line.sku), line.quantity, line.unit_price) for line in event.lines)
    return Placed(
        order_id=event.order_id,
        placed_at=event.occurred_at,
        country=intern(event.country),
        currency=intern(event.currency),
        gross=event.gross,
        lines=lines,
        settle_by=event.settle_by,
        unanswered=tuple(units_by_sku(lines)),
        customer_id=event.customer_id and intern(event.customer_id),
    )


def _reserved(order: Placed, event: ReservationsRecorded) -> Placed:
    reserved = set(event.reserved)
    return replace(order, unanswered=tuple(sku for sku in order.unanswered if sku not in reserved))


def _confirmed(order: Placed) -> Confirmed:
    return Confirmed(
        order_id=order.order_id,
        placed_at=order.placed_at,
        country=order.country,
        currency=order.currency,
        gross=order.gross,
        lines=order.lines,
        customer_id=order.customer_id,
    )


def _shipped(order: Confirmed, event: OrderShipped) -> Shipped:
    return Shipped(
        order_id=order.order_id,
        country=order.country,
        currency=order.currency,
        carrier=event.carrier,
        reference=event.reference,
        lines=order.lines,
        returns=0,
        owed=_owed("issue", event.issue, order.lines, event.occurred_at),
        customer_id=order.customer_id,
    )


def _returned(order: Shipped, event: OrderReturned) -> Shipped:
    units = {line.sku: line.quantity for line in event.lines}
    movements = tuple(
        Owed("return", sku, event.return_number, quantity, event.occurred_at)
        for sku, quantity in units.items()
    )
    return replace(
        order, lines=take_units(order.lines, units), returns=event.return_number, owed=order.owed + movements
    )


def _moved(order: Rejected | Cancelled | Expired | Shipped, event: MovementsRecorded) -> Order:
    ended = {(movement.step, movement.sku, movement.return_number) for movement in event.movements}
    left = tuple(owed for owed in order.owed if (owed.step, owed.sku, owed.number) not in ended)
    return replace(order, owed=left)


def _releases(
    order: Placed | Confirmed, event: OrderRejected | OrderCancelled | OrderExpired
) -> tuple[Owed, ...]:
    return _owed("release", event.release, order.lines, event.occurred_at)


def _owed(
    step: str, skus: Collection[str], lines: tuple[LineState, ...], occurred_at: int
) -> tuple[Owed, ...]:
    units = units_by_sku(lines)
    return tuple(Owed(step, sku, 0, units[sku], occurred_at) for sku in skus)


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
