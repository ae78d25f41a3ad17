"""Request models of the stock API, and the commands that they become."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from contracts.inventory.commands import AdjustStock, ReceiveStock
from services.edge.fields import MAX_QUANTITY, Moment, Quantity, RequestBody, Text, occurred_at
from services.edge.problems import invalid


class ReceiptRequest(RequestBody):
    """A delivery; `reference` is the supplier's number or ours."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"quantity": 144, "reference": "DN-20101201-7"}]}
    )

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


class AdjustmentRequest(RequestBody):
    """A correction: negative for a write-off, positive for a find."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"quantity": -3, "reason": "broken in the warehouse"}]}
    )

    quantity: Annotated[int, Field(strict=True, ge=-MAX_QUANTITY, le=MAX_QUANTITY)]
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


class StockResponse(BaseModel):
    """`version` counts the SKU's events."""

    sku: str
    version: int
    status: str
    command_id: str
