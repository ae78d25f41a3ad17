"""What the warehouse may ask of stock over HTTP, and the commands that it becomes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from contracts.inventory.commands import AdjustStock, ReceiveStock
from services.edge.fields import MAX_QUANTITY, Moment, Quantity, Text, occurred_at
from services.edge.http import invalid


class ReceiptRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A delivery; `reference` is the supplier's number or ours."""

    quantity: Quantity
    reference: Text
    occurred_at: Moment | None = None

    def command(self, sku: str, now: int) -> ReceiveStock:
        return ReceiveStock(
            sku=sku,
            quantity=self.quantity,
            reference=self.reference,
            occurred_at=occurred_at(self.occurred_at, now),
        )


class AdjustmentRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A correction: negative for a write-off, positive for a find."""

    quantity: Annotated[int, Meta(ge=-MAX_QUANTITY, le=MAX_QUANTITY)]
    reason: Text
    occurred_at: Moment | None = None

    def command(self, sku: str, now: int) -> AdjustStock:
        """Raises `Problem` for a quantity of 0."""
        if self.quantity == 0:
            raise invalid("quantity", "an adjustment of 0 changes nothing")
        return AdjustStock(
            sku=sku,
            quantity=self.quantity,
            reason=self.reason,
            occurred_at=occurred_at(self.occurred_at, now),
        )


class StockAnswer(Struct, frozen=True):
    """`version` counts the SKU's events."""

    sku: str
    version: int
    status: str
    command_id: str
