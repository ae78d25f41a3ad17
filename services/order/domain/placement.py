"""The rules from placing an order until it is confirmed, rejected, cancelled or expired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from contracts.order.commands import (
    CancelOrder,
    ExpireOrder,
    JustifyReservation,
    PlaceOrder,
    RecordReservations,
)
from contracts.order.events import (
    OrderCancelled,
    OrderConfirmed,
    OrderEvent,
    OrderExpired,
    OrderPlaced,
    OrderRejected,
    ReservationsRecorded,
)
from services.order.domain.refusals import OrderRefusal
from services.order.domain.state import (
    Cancelled,
    Confirmed,
    Expired,
    NotPlaced,
    Order,
    Placed,
    Rejected,
    Shipped,
    units_by_sku,
    units_of,
)

RESERVATION_LOST = "its hold on stock was lost in a failover"
MOST_UNITS = 2**31 - 1
MOST_MICROS = 2**63 - 1


def place(command: PlaceOrder, order: Order) -> Sequence[OrderEvent]:
    if not isinstance(order, NotPlaced):
        raise OrderRefusal.ORDER_EXISTS.refused()
    return [
        OrderPlaced(
            order_id=command.order_id,
            customer_id=command.customer_id,
            country=command.country,
            currency=command.currency,
            occurred_at=command.occurred_at,
            lines=command.lines,
            charges=command.charges,
            gross=_gross(command),
            settle_by=command.settle_by,
        )
    ]


def _gross(command: PlaceOrder) -> int:
    if not command.lines:
        raise OrderRefusal.EMPTY_ORDER.refused()
    for line in command.lines:
        if line.quantity < 1:
            raise OrderRefusal.BAD_QUANTITY.refused(f"{line.sku}: {line.quantity}")
        if line.unit_price < 0:
            raise OrderRefusal.NEGATIVE_PRICE.refused(line.sku)
    if sum(line.quantity for line in command.lines) > MOST_UNITS:
        raise OrderRefusal.TOO_MANY_UNITS.refused()
    goods = sum(line.quantity * line.unit_price for line in command.lines)
    gross = goods + sum(charge.amount for charge in command.charges)
    if goods > MOST_MICROS or abs(gross) > MOST_MICROS:
        raise OrderRefusal.AMOUNT_TOO_LARGE.refused()
    return gross


def record_reservations(command: RecordReservations, order: Order) -> Sequence[OrderEvent]:
    """Only the first outcome of a SKU counts. If one command has both, the SKU is reserved and must be released.

    An outcome that arrives after the order ended changes nothing: the release is already pending. A confirmed
    order with a short SKU lost its reservation in a failover: it is cancelled.
    """
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Placed(order_id=order_id, placed_at=placed_at, lines=lines):
            available, missing = set(command.reserved), set(command.short)
            reserved = tuple(sku for sku in order.unanswered if sku in available)
            short = tuple(sku for sku in order.unanswered if sku in missing - available)
            if short:
                release = tuple(sku for sku in units_by_sku(lines) if sku not in short)
                return [OrderRejected(order_id, placed_at, short, release)]
            if len(reserved) == len(order.unanswered):
                return [
                    OrderConfirmed(
                        order_id,
                        placed_at,
                        reserved,
                        order.country,
                        order.currency,
                        units_of(lines),
                        order.gross,
                    )
                ]
            return [ReservationsRecorded(order_id, placed_at, reserved)] if reserved else []
        case Confirmed(placed_at=placed_at):
            lost = set(command.short) - set(command.reserved)
            return (
                [_cancelled(order, placed_at, RESERVATION_LOST)]
                if lost & units_by_sku(order.lines).keys()
                else []
            )
        case Rejected() | Cancelled() | Expired() | Shipped():
            return []
        case _:
            assert_never(order)


def cancel(command: CancelOrder, order: Order) -> Sequence[OrderEvent]:
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Placed() | Confirmed():
            return [_cancelled(order, command.occurred_at, command.reason)]
        case Cancelled():
            return []
        case Rejected():
            raise OrderRefusal.ALREADY_REJECTED.refused()
        case Expired():
            raise OrderRefusal.ALREADY_EXPIRED.refused()
        case Shipped():
            raise OrderRefusal.ALREADY_SHIPPED.refused()
        case _:
            assert_never(order)


def _cancelled(order: Placed | Confirmed, occurred_at: int, reason: str) -> OrderCancelled:
    return OrderCancelled(
        order_id=order.order_id,
        occurred_at=occurred_at,
        reason=reason,
        confirmed=isinstance(order, Confirmed),
        placed_at=order.placed_at,
        country=order.country,
        currency=order.currency,
        units=units_of(order.lines),
        gross=order.gross,
        release=tuple(units_by_sku(order.lines)),
    )


def justify(command: JustifyReservation, order: Order) -> Sequence[OrderEvent]:
    """Changes nothing: the outcome says whether the reservation is still valid, and if not, why."""
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Placed() | Confirmed():
            if command.sku not in units_by_sku(order.lines):
                raise OrderRefusal.SKU_NOT_IN_ORDER.refused(command.sku)
            return []
        case Rejected():
            raise OrderRefusal.ALREADY_REJECTED.refused()
        case Cancelled():
            raise OrderRefusal.ALREADY_CANCELLED.refused()
        case Expired():
            raise OrderRefusal.ALREADY_EXPIRED.refused()
        case Shipped():
            raise OrderRefusal.ALREADY_SHIPPED.refused()
        case _:
            assert_never(order)


def expire(command: ExpireOrder, order: Order) -> Sequence[OrderEvent]:
    """Takes the time from the command: the domain has no clock."""
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Placed():
            if order.settle_by is None or command.occurred_at < order.settle_by:
                raise OrderRefusal.NOT_DUE.refused()
            return [OrderExpired(order.order_id, command.occurred_at, tuple(units_by_sku(order.lines)))]
        case Expired():
            return []
        case Confirmed() | Rejected() | Cancelled() | Shipped():
            raise OrderRefusal.ALREADY_SETTLED.refused()
        case _:
            assert_never(order)
