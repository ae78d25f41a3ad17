"""One order of two SKUs, one of them in two lines at different prices, and every state it can be in."""

from contracts.order.commands import (
    CancelOrder,
    ExpireOrder,
    OrderCommand,
    PlaceOrder,
    RecordMovements,
    RecordReservations,
    ReturnedLine,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import (
    Charge,
    Line,
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
from services.order.domain.decider import order_decider
from services.order.domain.state import Order
from tests.unit.given import Spec

ORDER, AT, LATER, DUE = "536365", 1_000, 2_000, 9_000
MUG, LAMP = "22423", "85123A"
UNIT = 1_000_000
LINES = (Line(MUG, 2, 3 * UNIT), Line(LAMP, 1, 10 * UNIT), Line(MUG, 4, 2 * UNIT))
CHARGES = (Charge("POST", 5 * UNIT), Charge("D", -1 * UNIT))
GROSS, UNITS = 28 * UNIT, 7

order: Spec[OrderCommand, Order, OrderEvent] = Spec(order_decider)

placed = OrderPlaced(ORDER, "United Kingdom", "GBP", AT, LINES, "17850", CHARGES, GROSS, DUE)
mug_reserved = ReservationsRecorded(ORDER, AT, (MUG,))
confirmed = OrderConfirmed(ORDER, AT, (LAMP,), "United Kingdom", "GBP", UNITS, GROSS)
rejected = OrderRejected(ORDER, AT, (LAMP,), (MUG,))
cancelled = OrderCancelled(
    ORDER, LATER, "changed my mind", True, AT, "United Kingdom", "GBP", UNITS, GROSS, (MUG, LAMP)
)
expired = OrderExpired(ORDER, DUE, (MUG, LAMP))
shipped = OrderShipped(ORDER, LATER, (MUG, LAMP), "Royal Mail", "RM 1")
mugs_returned = OrderReturned(
    ORDER,
    LATER + 1,
    1,
    "too many",
    "United Kingdom",
    "GBP",
    (RefundedLine(MUG, 3, 8 * UNIT),),
    3,
    8 * UNIT,
    False,
)
rest_returned = OrderReturned(
    ORDER,
    LATER + 2,
    2,
    "all of it",
    "United Kingdom",
    "GBP",
    (RefundedLine(LAMP, 1, 10 * UNIT), RefundedLine(MUG, 3, 6 * UNIT)),
    4,
    16 * UNIT,
    True,
)

HISTORIES: dict[str, tuple[OrderEvent, ...]] = {
    "unknown": (),
    "placed": (placed,),
    "partly reserved": (placed, mug_reserved),
    "confirmed": (placed, mug_reserved, confirmed),
    "rejected": (placed, mug_reserved, rejected),
    "cancelled": (placed, mug_reserved, confirmed, cancelled),
    "expired": (placed, mug_reserved, expired),
    "shipped": (placed, mug_reserved, confirmed, shipped),
    "partly returned": (placed, mug_reserved, confirmed, shipped, mugs_returned),
    "returned": (placed, mug_reserved, confirmed, shipped, mugs_returned, rest_returned),
}

place = PlaceOrder(ORDER, "United Kingdom", "GBP", AT, LINES, CHARGES, "17850", DUE)
lamp_reserved = RecordReservations(ORDER, (LAMP,), ())
lamp_short = RecordReservations(ORDER, (), (LAMP,))
cancel = CancelOrder(ORDER, "changed my mind", LATER)
expire = ExpireOrder(ORDER, DUE)
ship = ShipOrder(ORDER, LATER, "Royal Mail", "RM 1")
return_mugs = ReturnLines(ORDER, (ReturnedLine(MUG, 3),), "too many", LATER + 1)
return_rest = ReturnLines(ORDER, (ReturnedLine(LAMP, 1), ReturnedLine(MUG, 3)), "all of it", LATER + 2)


def movements(*ended: Movement) -> RecordMovements:
    return RecordMovements(ORDER, ended)


def done(step: str, sku: str, number: int = 0) -> Movement:
    return Movement(step, sku, number, True, "")


def moved(at: int, *ended: Movement) -> MovementsRecorded:
    return MovementsRecorded(ORDER, at, ended)
