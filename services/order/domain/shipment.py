"""The rules of shipment, returns and the stock movements that follow.

A return refunds units at the price at which they were sold; if a SKU is in several lines, in the order of the
lines. So an order's refunds never exceed its lines (I8). Charges are not refunded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from contracts.order.commands import RecordMovements, ReturnedLine, ReturnLines, ShipOrder
from contracts.order.events import (
    Movement,
    MovementsRecorded,
    OrderEvent,
    OrderReturned,
    OrderShipped,
    RefundedLine,
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
    take_units,
    units_by_sku,
    units_of,
)


def ship(command: ShipOrder, order: Order) -> Sequence[OrderEvent]:
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Placed():
            raise OrderRefusal.NOT_CONFIRMED.refused()
        case Confirmed():
            return [
                OrderShipped(
                    order_id=command.order_id,
                    occurred_at=command.occurred_at,
                    carrier=command.carrier,
                    reference=command.reference,
                    issue=tuple(units_by_sku(order.lines)),
                )
            ]
        case Shipped(carrier=command.carrier, reference=command.reference):
            return []
        case Shipped():
            raise OrderRefusal.ALREADY_SHIPPED.refused()
        case Rejected():
            raise OrderRefusal.ALREADY_REJECTED.refused()
        case Cancelled():
            raise OrderRefusal.ALREADY_CANCELLED.refused()
        case Expired():
            raise OrderRefusal.ALREADY_EXPIRED.refused()
        case _:
            assert_never(order)


def take_back(command: ReturnLines, order: Order) -> Sequence[OrderEvent]:
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Shipped():
            returned_units = _returned_units(command.lines)
            refunded = _refunds(returned_units, order)
            units = sum(returned_units.values())
            return [
                OrderReturned(
                    order_id=command.order_id,
                    occurred_at=command.occurred_at,
                    return_number=order.returns + 1,
                    reason=command.reason,
                    country=order.country,
                    currency=order.currency,
                    lines=refunded,
                    units=units,
                    refund=sum(line.refund for line in refunded),
                    complete=units == units_of(order.lines),
                )
            ]
        case Placed() | Confirmed() | Rejected() | Cancelled() | Expired():
            raise OrderRefusal.NOT_SHIPPED.refused()
        case _:
            assert_never(order)


def _returned_units(lines: Iterable[ReturnedLine]) -> dict[str, int]:
    """Returns the units of each SKU that come back: repeated SKUs are one movement."""
    returned_units: dict[str, int] = {}
    for line in lines:
        if line.quantity < 1:
            raise OrderRefusal.BAD_QUANTITY.refused(f"{line.sku}: {line.quantity}")
        returned_units[line.sku] = returned_units.get(line.sku, 0) + line.quantity
    if not returned_units:
        raise OrderRefusal.EMPTY_RETURN.refused()
    return returned_units


def _refunds(returned_units: dict[str, int], order: Shipped) -> tuple[RefundedLine, ...]:
    left = units_by_sku(order.lines)
    if not any(left.values()):
        raise OrderRefusal.NOTHING_TO_RETURN.refused()
    for sku, units in returned_units.items():
        if sku not in left:
            raise OrderRefusal.SKU_NOT_IN_ORDER.refused(sku)
        if units > left[sku]:
            raise OrderRefusal.RETURNED_TOO_MUCH.refused(f"{sku}: {units} of {left[sku]}")
    refunds = dict.fromkeys(returned_units, 0)
    for before, after in zip(order.lines, take_units(order.lines, returned_units), strict=True):
        if before is not after:
            refunds[before.sku] += (before.quantity - after.quantity) * before.unit_price
    return tuple(RefundedLine(sku, units, refunds[sku]) for sku, units in returned_units.items())


def record_movements(command: RecordMovements, order: Order) -> Sequence[OrderEvent]:
    """Counts only movements that the order waits for, and only their first outcome; a refusal ends a step too."""
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Placed() | Confirmed():
            return []
        case Rejected() | Cancelled() | Expired() | Shipped():
            owed_since = {(owed.step, owed.sku, owed.number): owed.at for owed in order.owed}
            ended: dict[tuple[str, str, int], Movement] = {}
            for movement in command.movements:
                key = (movement.step, movement.sku, movement.return_number)
                if key in owed_since:
                    ended.setdefault(key, movement)
            if not ended:
                return []
            latest = max(owed_since[key] for key in ended)
            return [MovementsRecorded(order.order_id, latest, tuple(ended.values()))]
        case _:
            assert_never(order)
