"""The rules of one order, by command.

One command yields at most one event, so every prefix of a stream is a valid history.

A return refunds units at the price at which they were sold; if a SKU is in several lines, in the order of the
lines. So an order's refunds never exceed its lines (I8). Charges are not refunded.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import assert_never

from contracts.order.commands import (
    CancelOrder,
    ExpireOrder,
    JustifyReservation,
    OrderCommand,
    PlaceOrder,
    RecordMovements,
    RecordReservations,
    ReturnedLine,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import (
    Movement,
    MovementsRecorded,
    OrderCancelled,
    OrderConfirmed,
    OrderEvent,
    OrderExpired,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
    RefundedLine,
    ReservationsRecorded,
)
from services.kernel.model.decider import Decider, Refused
from services.order.domain.state import (
    Cancelled,
    Confirmed,
    Expired,
    NotPlaced,
    Order,
    Placed,
    Rejected,
    Shipped,
    evolve,
    status,
    take_units,
    units_by_sku,
    units_of,
)

RESERVATION_LOST = "its hold on stock was lost in a failover"
MAX_UNITS = 2**31 - 1
MAX_MICROS = 2**63 - 1


class OrderRefusal(Enum):
    """One member per code; the code is the name in lower case, the value is the reason."""

    ORDER_NOT_FOUND = "there is no such order"
    ORDER_EXISTS = "an order of this id was placed before"
    EMPTY_ORDER = "an order has at least one line"
    BAD_QUANTITY = "a quantity is at least 1"
    NEGATIVE_PRICE = "a unit price is at least 0"
    TOO_MANY_UNITS = "an order has at most 2,147,483,647 units"
    AMOUNT_TOO_LARGE = "the order's amount does not fit into 64 bits of micros"
    NOT_CONFIRMED = "the order is not confirmed yet"
    ALREADY_SETTLED = "the order was settled before"
    ALREADY_REJECTED = "the order was rejected"
    ALREADY_CANCELLED = "the order was cancelled"
    ALREADY_EXPIRED = "the order expired"
    ALREADY_SHIPPED = "the order has already shipped: create a return instead"
    NOT_DUE = "the order's time to settle is not over"
    NOT_SHIPPED = "only what was shipped can be returned"
    EMPTY_RETURN = "a return has at least one line"
    SKU_NOT_IN_ORDER = "the order has no such SKU"
    RETURNED_TOO_MUCH = "more units than the customer still has"
    NOTHING_TO_RETURN = "everything was returned before"

    def refused(self, detail: str = "", *, hides: bool = False) -> Refused:
        """Returns the refusal to raise; `detail` is added to the reason. `hides`: see `Refused`."""
        reason = f"{self.value} ({detail})" if detail else self.value
        return Refused(self.name.lower(), reason, hides=hides)


ENDED: dict[type[Order], OrderRefusal] = {
    Rejected: OrderRefusal.ALREADY_REJECTED,
    Cancelled: OrderRefusal.ALREADY_CANCELLED,
    Expired: OrderRefusal.ALREADY_EXPIRED,
    Shipped: OrderRefusal.ALREADY_SHIPPED,
}


def decide(command: OrderCommand, order: Order) -> Sequence[OrderEvent]:
    """Returns at most one event. Raises `Refused`."""
    match command:
        case PlaceOrder():
            return place(command, order)
        case RecordReservations():
            return record_reservations(command, order)
        case CancelOrder():
            return cancel(command, order)
        case ExpireOrder():
            return expire(command, order)
        case JustifyReservation():
            return justify(command, order)
        case ShipOrder():
            return ship(command, order)
        case ReturnLines():
            return take_back(command, order)
        case RecordMovements():
            return record_movements(command, order)
        case _:
            assert_never(command)


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
    if sum(line.quantity for line in command.lines) > MAX_UNITS:
        raise OrderRefusal.TOO_MANY_UNITS.refused()
    goods = sum(line.quantity * line.unit_price for line in command.lines)
    gross = goods + sum(charge.amount for charge in command.charges)
    if goods > MAX_MICROS or abs(gross) > MAX_MICROS:
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
    """Another customer's order is refused as one that does not exist, whatever its state."""
    match order:
        case NotPlaced():
            raise OrderRefusal.ORDER_NOT_FOUND.refused()
        case _ if command.customer_id is not None and command.customer_id != order.customer_id:
            raise OrderRefusal.ORDER_NOT_FOUND.refused(hides=True)
        case Placed() | Confirmed():
            return [_cancelled(order, command.occurred_at, command.reason)]
        case Cancelled():
            return []
        case Rejected() | Expired() | Shipped():
            raise ENDED[type(order)].refused()
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
        case Rejected() | Cancelled() | Expired() | Shipped():
            raise ENDED[type(order)].refused()
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
        case Rejected() | Cancelled() | Expired() | Shipped():
            raise ENDED[type(order)].refused()
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


order_decider: Decider[OrderCommand, Order, OrderEvent] = Decider(
    initial=NotPlaced(), decide=decide, evolve=evolve, status=status
)
