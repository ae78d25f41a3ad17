"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class Line:
    """One line as the customer wrote it; the same SKU may stand on several lines."""

    TYPE: ClassVar[str] = "daybook.order.Line"

    sku: str
    quantity: int  # Units, at least 1.
    unit_price: int  # Micros of the order's currency, at least 0.


@dataclass(frozen=True)
class Charge:
    """Postage, a fee or a discount: money that is not goods."""

    TYPE: ClassVar[str] = "daybook.order.Charge"

    code: str
    amount: int  # Micros; negative for a discount.


@dataclass(frozen=True)
class OrderPlaced:
    """An order was placed."""

    TYPE: ClassVar[str] = "daybook.order.OrderPlaced"

    order_id: str  # The order; also the record's key.
    country: str
    currency: str  # ISO 4217.
    occurred_at: int  # Business time, UTC. (Micros.)
    lines: tuple[Line, ...]
    customer_id: str | None = None  # A pseudonym; null for a guest.
    charges: tuple[Charge, ...] = ()  # Since version 2.
    gross: int = 0  # Micros: lines + charges. Since version 2; the upcaster computes it for version 1.
    settle_by: int | None = None  # Since version 2. (Micros.)


@dataclass(frozen=True)
class ReservationsRecorded:
    """Some of the order's SKUs are reserved; others are still unanswered."""

    TYPE: ClassVar[str] = "daybook.order.ReservationsRecorded"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    reserved: tuple[str, ...]  # SKUs that became reserved.


@dataclass(frozen=True)
class OrderConfirmed:
    """Every SKU of the order is reserved."""

    TYPE: ClassVar[str] = "daybook.order.OrderConfirmed"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # The order's own business time. (Micros.)
    reserved: tuple[str, ...]  # SKUs that became reserved with this event.
    country: str
    currency: str  # ISO 4217.
    units: int
    gross: int  # Micros.


@dataclass(frozen=True)
class OrderRejected:
    """At least one SKU was short."""

    TYPE: ClassVar[str] = "daybook.order.OrderRejected"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    short: tuple[str, ...]  # SKUs.
    release: tuple[str, ...]  # SKUs that are asked to be released.


@dataclass(frozen=True)
class OrderCancelled:
    """The order was cancelled before shipping."""

    TYPE: ClassVar[str] = "daybook.order.OrderCancelled"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    reason: str
    confirmed: bool  # Whether it had been confirmed.
    placed_at: int  # The order's own business time. (Micros.)
    country: str
    currency: str  # ISO 4217.
    units: int
    gross: int  # Micros.
    release: tuple[str, ...]  # SKUs that are asked to be released.


@dataclass(frozen=True)
class OrderExpired:
    """The order was not settled in its time."""

    TYPE: ClassVar[str] = "daybook.order.OrderExpired"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    release: tuple[str, ...]  # SKUs that are asked to be released.


@dataclass(frozen=True)
class OrderShipped:
    """The order left the house."""

    TYPE: ClassVar[str] = "daybook.order.OrderShipped"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    issue: tuple[str, ...]  # SKUs that are asked to be issued.
    carrier: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class RefundedLine:
    """Units of one SKU that came back, and the money for them."""

    TYPE: ClassVar[str] = "daybook.order.RefundedLine"

    sku: str
    quantity: int
    refund: int  # Micros.


@dataclass(frozen=True)
class OrderReturned:
    """Goods of a shipped order came back."""

    TYPE: ClassVar[str] = "daybook.order.OrderReturned"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    return_number: int  # 1-based.
    reason: str
    country: str
    currency: str  # ISO 4217.
    lines: tuple[RefundedLine, ...]
    units: int
    refund: int  # Micros.
    complete: bool  # Whether nothing is left with the customer.


@dataclass(frozen=True)
class Movement:
    """The end of one stock step that the order asked for."""

    TYPE: ClassVar[str] = "daybook.order.Movement"

    step: str  # release, issue or return.
    sku: str
    return_number: int  # 1-based number of the return; 0 for the other steps.
    accepted: bool
    code: str  # The refusal's code; empty when accepted.


@dataclass(frozen=True)
class MovementsRecorded:
    """Stock steps that the order asked for came to their end."""

    TYPE: ClassVar[str] = "daybook.order.MovementsRecorded"

    order_id: str  # The order; also the record's key.
    occurred_at: int  # Business time, UTC. (Micros.)
    movements: tuple[Movement, ...]


OrderEvent: TypeAlias = (
    OrderPlaced
    | ReservationsRecorded
    | OrderConfirmed
    | OrderRejected
    | OrderCancelled
    | OrderExpired
    | OrderShipped
    | OrderReturned
    | MovementsRecorded
)
