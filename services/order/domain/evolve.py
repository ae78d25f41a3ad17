"""The next state after an event. It contains no rules: an event is a fact."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from sys import intern

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
from services.order.domain.state import (
    Cancelled,
    Confirmed,
    Expired,
    LineState,
    NotPlaced,
    Order,
    Owed,
    Placed,
    Rejected,
    Shipped,
    take_units,
    units_by_sku,
)


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
            return Rejected(event.order_id, _releases(order, event))
        case Placed() | Confirmed(), OrderCancelled():
            return Cancelled(event.order_id, _releases(order, event))
        case Placed(), OrderExpired():
            return Expired(event.order_id, _releases(order, event))
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
    )


def _reserved(order: Placed, event: ReservationsRecorded) -> Placed:
    reserved = set(event.reserved)
    return replace(order, unanswered=tuple(sku for sku in order.unanswered if sku not in reserved))


def _confirmed(order: Placed) -> Confirmed:
    return Confirmed(order.order_id, order.placed_at, order.country, order.currency, order.gross, order.lines)


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
    )


def _returned(order: Shipped, event: OrderReturned) -> Shipped:
    units = {line.sku: line.quantity for line in event.lines}
    movements = tuple(
        Owed("return", sku, event.return_number, quantity, event.occurred_at)
        for sku, quantity in units.items()
    )
    return replace(
        order,
        lines=take_units(order.lines, units),
        returns=event.return_number,
        owed=order.owed + movements,
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
