"""The order's process manager: its commands to inventory, as a pure function of its own stream.

A placed order reserves each SKU. An order that ends before shipment releases all SKUs, also those whose reservation
is still pending. A shipped order issues them; a return takes units back. The state determines the pending commands,
and a command's id follows from its content: a retry is the same command.
"""

from collections.abc import Sequence
from typing import TypeAlias, assert_never
from uuid import UUID

from contracts.inventory.commands import IssueStock, ReleaseStock, ReserveStock, ReturnStock
from contracts.order.commands import ExpireOrder, RecordMovements, RecordReservations
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
    ReservationsRecorded,
)
from services.kernel.model.process import OutgoingCommand, Process, Reply, derived_id
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
    units_by_sku,
)

NAMESPACE = UUID("6b1f3b1e-7a53-5d0c-9b0e-0d1a7b00c0de").bytes
STEPS = {ReleaseStock.TYPE: "release", IssueStock.TYPE: "issue", ReturnStock.TYPE: "return"}
FAILED = "command_failed"

RecordCommand: TypeAlias = RecordReservations | RecordMovements


def react(event: OrderEvent, order: Order) -> Sequence[OutgoingCommand]:
    """Returns the commands that `event` causes; `order` is the state right after it."""
    match event:
        case OrderPlaced() | OrderRejected() | OrderCancelled() | OrderExpired() | OrderShipped():
            return pending(order)
        case OrderReturned(return_number=number):
            return [outgoing for outgoing in pending(order) if outgoing.tag == str(number)]
        case ReservationsRecorded() | OrderConfirmed() | MovementsRecorded():
            return ()
        case _:
            assert_never(event)


def pending(order: Order) -> Sequence[OutgoingCommand]:
    """Returns every pending command, in the order in which they were first sent."""
    match order:
        case NotPlaced() | Confirmed():
            return ()
        case Placed(order_id=order_id, placed_at=at):
            return _reserves(order_id, order.lines, at, order.unanswered)
        case Rejected() | Cancelled() | Expired() | Shipped():
            return [_movement(order.order_id, owed) for owed in order.owed]
        case _:
            assert_never(order)


def claims(order: Order) -> Sequence[OutgoingCommand]:
    """Returns every command that the order depends on, with or without an outcome."""
    match order:
        case Placed(order_id=order_id, placed_at=at) | Confirmed(order_id=order_id, placed_at=at):
            return _reserves(order_id, order.lines, at, tuple(units_by_sku(order.lines)))
        case _:
            return pending(order)


def again(event: OrderEvent, order: Order, _epoch: int) -> Sequence[OutgoingCommand]:
    """Returns the commands that `event` caused, under the same ids; `order` is the current state. An order that has
    ended does not reserve again: its release closes the reservation."""
    match event:
        case OrderPlaced(order_id=order_id, occurred_at=at, lines=placed):
            if isinstance(order, Rejected | Cancelled | Expired):
                return ()
            lines = tuple(LineState(line.sku, line.quantity, line.unit_price) for line in placed)
            return _reserves(order_id, lines, at, tuple(units_by_sku(lines)))
        case (
            OrderRejected(order_id=order_id, release=skus, occurred_at=at)
            | OrderCancelled(order_id=order_id, release=skus, occurred_at=at)
            | OrderExpired(order_id=order_id, release=skus, occurred_at=at)
        ):
            return [_movement(order_id, Owed("release", sku, 0, 0, at)) for sku in skus]
        case OrderShipped(order_id=order_id, issue=skus, occurred_at=at):
            return [_movement(order_id, Owed("issue", sku, 0, 0, at)) for sku in skus]
        case OrderReturned(order_id=order_id, return_number=number, occurred_at=at, lines=returned):
            return [
                _movement(order_id, Owed("return", line.sku, number, line.quantity, at)) for line in returned
            ]
        case ReservationsRecorded() | OrderConfirmed() | MovementsRecorded():
            return ()
        case _:
            assert_never(event)


def _reserves(
    order_id: str, lines: tuple[LineState, ...], at: int, skus: Sequence[str]
) -> Sequence[OutgoingCommand]:
    units = units_by_sku(lines)
    return [
        OutgoingCommand(_id(order_id, "reserve", sku, 0), sku, ReserveStock(sku, order_id, units[sku], at))
        for sku in skus
    ]


def _movement(order_id: str, owed: Owed) -> OutgoingCommand:
    step, sku, number, units, at = owed
    command_id = _id(order_id, step, sku, number)
    match step:
        case "release":
            return OutgoingCommand(command_id, sku, ReleaseStock(sku, order_id, at))
        case "issue":
            return OutgoingCommand(command_id, sku, IssueStock(sku, order_id, at))
        case _:
            return OutgoingCommand(
                command_id, sku, ReturnStock(sku, order_id, number, units, at), tag=str(number)
            )


def _id(order_id: str, step: str, sku: str, number: int) -> str:
    return derived_id(NAMESPACE, f"{order_id}/{step}/{sku}/{number}")


def record(order_id: str, outcomes: Sequence[Reply]) -> Sequence[RecordCommand]:
    """Returns the outcomes as commands to the order: at most one per kind. A failed command is parked for an
    operator: it stays pending. Raises ValueError for the outcome of a command that orders do not send."""
    reserved: list[str] = []
    short: list[str] = []
    movements: list[Movement] = []
    for outcome in outcomes:
        if outcome.code == FAILED:
            continue
        if outcome.command_type == ReserveStock.TYPE:
            (reserved if outcome.accepted else short).append(outcome.subject)
        elif outcome.command_type in STEPS:
            movements.append(_movement_of(outcome))
        else:
            raise ValueError(f"order {order_id} never asks for {outcome.command_type}")
    commands: list[RecordCommand] = []
    if reserved or short:
        commands.append(RecordReservations(order_id, tuple(reserved), tuple(short)))
    if movements:
        commands.append(RecordMovements(order_id, tuple(movements)))
    return commands


def _movement_of(outcome: Reply) -> Movement:
    return Movement(
        step=STEPS[outcome.command_type],
        sku=outcome.subject,
        return_number=int(outcome.tag or 0),
        accepted=outcome.accepted,
        code="" if outcome.accepted else outcome.code,
    )


def deadline(order: Order) -> int | None:
    """Returns when (micros UTC, recorded time) a placed order expires; None if it has no deadline."""
    return order.settle_by if isinstance(order, Placed) else None


def is_open(order: Order) -> bool:
    """Tells whether `pending` returns any command."""
    match order:
        case NotPlaced() | Confirmed():
            return False
        case Placed():
            return bool(order.unanswered)
        case Rejected() | Cancelled() | Expired() | Shipped():
            return bool(order.owed)
        case _:
            assert_never(order)


order_process: Process[Order, OrderEvent] = Process(
    react=react,
    pending=pending,
    record=record,
    deadline=deadline,
    expire=ExpireOrder,
    is_open=is_open,
    again=again,
    claims=claims,
)
