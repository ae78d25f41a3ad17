"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from contracts.order.events import Charge, Line, Movement


@dataclass(frozen=True)
class PlaceOrder:
    """Place a new order."""

    TYPE: ClassVar[str] = "daybook.order.PlaceOrder"

    order_id: str  # The order; also the record's key.
    country: str
    currency: str  # ISO 4217.
    occurred_at: int  # Business time, UTC. (Micros.)
    lines: tuple[Line, ...]
    charges: tuple[Charge, ...]
    customer_id: str | None = None  # A pseudonym; null for a guest.
    settle_by: int | None = None  # The order expires if it is not settled by then; null: never. (Micros.)


@dataclass(frozen=True)
class CancelOrder:
    """Cancel an order that is not shipped."""

    TYPE: ClassVar[str] = "daybook.order.CancelOrder"

    order_id: str  # The order; also the record's key.
    reason: str
    occurred_at: int  # Business time, UTC. (Micros.)
    customer_id: str | None = None  # Whose order it must be, else there is no such order; null: anybody's.


@dataclass(frozen=True)
class ShipOrder:
    """Hand a confirmed order to a carrier."""

    TYPE: ClassVar[str] = "daybook.order.ShipOrder"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    carrier: str | None = None
    reference: str | None = None  # The carrier's own number.


@dataclass(frozen=True)
class ReturnedLine:
    """Units of one SKU that come back."""

    TYPE: ClassVar[str] = "daybook.order.ReturnedLine"

    sku: str
    quantity: int  # Units, at least 1.


@dataclass(frozen=True)
class ReturnLines:
    """Take back a part of a shipped order, or all of it."""

    TYPE: ClassVar[str] = "daybook.order.ReturnLines"

    order_id: str  # The order; also the record's key.
    lines: tuple[ReturnedLine, ...]
    reason: str
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class ExpireOrder:
    """Give up an order that was not settled in its time."""

    TYPE: ClassVar[str] = "daybook.order.ExpireOrder"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class JustifyReservation:
    """After a failover: does the order stand behind a reservation? A refusal says why not."""

    TYPE: ClassVar[str] = "daybook.order.JustifyReservation"

    order_id: str  # The order; also the record's key.
    sku: str
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class RecordReservations:
    """Record what inventory answered to the order's reservations."""

    TYPE: ClassVar[str] = "daybook.order.RecordReservations"

    order_id: str  # The order; also the record's key.
    reserved: tuple[str, ...]  # SKUs.
    short: tuple[str, ...]  # SKUs.


@dataclass(frozen=True)
class RecordMovements:
    """Record what inventory answered to releases, issues and returns."""

    TYPE: ClassVar[str] = "daybook.order.RecordMovements"

    order_id: str  # The order; also the record's key.
    movements: tuple[Movement, ...]


OrderCommand: TypeAlias = (
    PlaceOrder
    | CancelOrder
    | ShipOrder
    | ReturnLines
    | ExpireOrder
    | JustifyReservation
    | RecordReservations
    | RecordMovements
)
