"""Inventory only replies to orders, except after a failover: then it asks each order whether its reservation is still
valid."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from contracts.inventory.commands import IssueStock, ReleaseStock
from contracts.inventory.events import InventoryEvent, StockReserved
from contracts.order.commands import JustifyReservation
from services.inventory.domain.state import Stock
from services.kernel.model.process import OutgoingCommand, Process, Reply, derived_id

NAMESPACE = UUID("0f8f2d0e-5f0b-5b8e-8f52-0d1a7b00c0de").bytes
ORDER_NOT_FOUND, ALREADY_SHIPPED = "order_not_found", "already_shipped"
FAILED = "command_failed"


def again(event: InventoryEvent, stock: Stock, epoch: int) -> Sequence[OutgoingCommand]:
    """Asks whether a reservation is still valid, after a failover; `epoch` gives the command a new id."""
    match event:
        case StockReserved(sku=sku, order_id=order_id, occurred_at=at) if order_id in stock.reservations:
            command_id = derived_id(NAMESPACE, f"{epoch}/{order_id}/{sku}")
            return [OutgoingCommand(command_id, order_id, JustifyReservation(order_id, sku, at), tag=str(at))]
        case _:
            return ()


def record(sku: str, outcomes: Sequence[Reply]) -> Sequence[Any]:
    """Returns the commands that end reservations which are no longer valid. Raises ValueError for the outcome of a
    command that stock does not send."""
    commands: list[Any] = []
    for outcome in outcomes:
        if outcome.command_type != JustifyReservation.TYPE:
            raise ValueError(f"stock {sku} never asks for {outcome.command_type}")
        if outcome.accepted or outcome.code == FAILED:
            continue
        order_id, at = outcome.subject, int(outcome.tag)
        if outcome.code == ALREADY_SHIPPED:
            commands.append(IssueStock(sku, order_id, at))
        else:
            commands.append(ReleaseStock(sku, order_id, at, order_lost=outcome.code == ORDER_NOT_FOUND))
    return commands


inventory_process: Process[Stock, InventoryEvent] = Process(record=record, again=again)
