"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class StockReceived:
    """A delivery arrived."""

    TYPE: ClassVar[str] = "daybook.inventory.StockReceived"

    sku: str  # The stock keeping unit; also the record's key.
    quantity: int  # Units, at least 1.
    reference: str
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class StockAdjusted:
    """The stock was corrected."""

    TYPE: ClassVar[str] = "daybook.inventory.StockAdjusted"

    sku: str  # The stock keeping unit; also the record's key.
    quantity: int  # Units; negative for a write-off.
    reason: str
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class StockReserved:
    """Units are held for an order."""

    TYPE: ClassVar[str] = "daybook.inventory.StockReserved"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    quantity: int  # Units, at least 1.
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class StockReleased:
    """An order's hold was given up."""

    TYPE: ClassVar[str] = "daybook.inventory.StockReleased"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    quantity: int  # Units; 0 where nothing was held.
    occurred_at: int  # Business time, UTC. (Micros.)
    order_lost: bool = False  # The order was lost in a failover and may be placed again: its steps stay open.


@dataclass(frozen=True)
class StockIssued:
    """Held units left the house."""

    TYPE: ClassVar[str] = "daybook.inventory.StockIssued"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    quantity: int  # Units, at least 1.
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class StockReturned:
    """Units of a shipped order came back."""

    TYPE: ClassVar[str] = "daybook.inventory.StockReturned"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    return_number: int  # 1-based.
    quantity: int  # Units, at least 1.
    occurred_at: int  # Business time, UTC. (Micros.)


InventoryEvent: TypeAlias = (
    StockReceived | StockAdjusted | StockReserved | StockReleased | StockIssued | StockReturned
)
