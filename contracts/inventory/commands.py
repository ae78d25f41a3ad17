"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class ReceiveStock:
    """Take a delivery."""

    TYPE: ClassVar[str] = "daybook.inventory.ReceiveStock"

    sku: str  # The stock keeping unit; also the record's key.
    quantity: int  # Units, at least 1.
    reference: str
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class AdjustStock:
    """Correct the stock: a write-off or a find."""

    TYPE: ClassVar[str] = "daybook.inventory.AdjustStock"

    sku: str  # The stock keeping unit; also the record's key.
    quantity: int  # Units; negative for a write-off; never 0.
    reason: str
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class ReserveStock:
    """Hold units for an order."""

    TYPE: ClassVar[str] = "daybook.inventory.ReserveStock"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    quantity: int  # Units, at least 1.
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class ReleaseStock:
    """Give up an order's hold."""

    TYPE: ClassVar[str] = "daybook.inventory.ReleaseStock"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    occurred_at: int  # Business time, UTC. (Micros.)
    order_lost: bool = False  # Lost in a failover, it may be placed again: its steps stay open.


@dataclass(frozen=True)
class IssueStock:
    """Hand out what an order holds."""

    TYPE: ClassVar[str] = "daybook.inventory.IssueStock"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    occurred_at: int  # Business time, UTC. (Micros.)


@dataclass(frozen=True)
class ReturnStock:
    """Take back units of a shipped order."""

    TYPE: ClassVar[str] = "daybook.inventory.ReturnStock"

    sku: str  # The stock keeping unit; also the record's key.
    order_id: str
    return_number: int  # 1-based.
    quantity: int  # Units, at least 1.
    occurred_at: int  # Business time, UTC. (Micros.)


InventoryCommand: TypeAlias = (
    ReceiveStock | AdjustStock | ReserveStock | ReleaseStock | IssueStock | ReturnStock
)
