"""From a confirmed order's shipment on: what leaves, what comes back, and what inventory says to it.

A return refunds units at the price they were sold for, and where a SKU stands in several lines at different
prices, in the order of the lines. So an order's refunds never exceed its lines (I8). Charges are not
refunded.
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
            asked = _asked(command.lines)
            refunded = _refunds(asked, order)
            units = sum(asked.values())
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


def _asked(lines: Iterable[ReturnedLine]) -> dict[str, int]:
    """The units of each SKU that come back: a SKU that is named twice comes back in one movement."""
    asked: dict[str, int] = {}
    for line in lines:
        if line.quantity < 1:
            raise OrderRefusal.BAD_QUANTITY.refused(f"{line.sku}: {line.quantity}")
        asked[line.sku] = asked.get(line.sku, 0) + line.quantity
    if not asked:
        raise OrderRefusal.EMPTY_RETURN.refused()
    return asked


def _refunds(asked: dict[str, int], order: Shipped) -> tuple[RefundedLine, ...]:
    left = units_by_sku(order.lines)
    if not any(left.values()):
        raise OrderRefusal.NOTHING_TO_RETURN.refused()
    for sku, units in asked.items():
        if sku not in left:
            raise OrderRefusal.SKU_NOT_IN_ORDER.refused(sku)
        if units > left[sku]:
            raise OrderRefusal.RETURNED_TOO_MUCH.refused(f"{sku}: {units} of {left[sku]}")
    refunds = dict.fromkeys(asked, 0)
    for before, after in zip(order.lines, take_units(order.lines, asked), strict=True):
        if before is not after:
            refunds[before.sku] += (before.quantity - after.quantity) * before.unit_price
    return tuple(RefundedLine(sku, units, refunds[sku]) for sku, units in asked.items())


def record_movements(command: RecordMovements, order: Order) -> Sequence[OrderEvent]:
    """Only what the order waits for counts, and of two answers the first; a refusal ends a step as well."""
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case Placed() | Confirmed():
            return []
        case Rejected() | Cancelled() | Expired() | Shipped():
            asked_at = {(owed.step, owed.sku, owed.number): owed.at for owed in order.owed}
            ended: dict[tuple[str, str, int], Movement] = {}
            for movement in command.movements:
                key = (movement.step, movement.sku, movement.return_number)
                if key in asked_at:
                    ended.setdefault(key, movement)
            if not ended:
                return []
            latest = max(asked_at[key] for key in ended)
            return [MovementsRecorded(order.order_id, latest, tuple(ended.values()))]
        case _:
            assert_never(order)
