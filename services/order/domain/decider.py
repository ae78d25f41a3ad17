"""The rules of one order, by command.

One command yields at most one event, so every prefix of a stream is a valid history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from contracts.order.commands import (
    CancelOrder,
    ExpireOrder,
    JustifyReservation,
    OrderCommand,
    PlaceOrder,
    RecordMovements,
    RecordReservations,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import OrderEvent
from services.kernel.model.decider import Decider
from services.order.domain.evolve import evolve
from services.order.domain.placement import cancel, expire, justify, place, record_reservations
from services.order.domain.shipment import record_movements, ship, take_back
from services.order.domain.state import NotPlaced, Order, status


def decide(command: OrderCommand, order: Order) -> Sequence[OrderEvent]:
    """Returns at most one event. Raises `Refused` with a code of `refusals.py`."""
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


order_decider: Decider[OrderCommand, Order, OrderEvent] = Decider(
    initial=NotPlaced(), decide=decide, evolve=evolve, status=status
)
