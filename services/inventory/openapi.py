"""The OpenAPI document of the inventory API."""

from __future__ import annotations

from typing import Any

from services.edge.openapi import Operation, Parameter, document, refusal
from services.edge.write_docs import ID_SCHEMA, WRITE_PARAMETERS, done, failures
from services.inventory.requests import AdjustmentRequest, ReceiptRequest, StockAnswer

SKU = "85123A"
COMMAND_ID = "7f0f3a52-6a25-5f1e-8a52-0a2d7f2f6c90"
EXAMPLES: dict[type, Any] = {
    ReceiptRequest: {"quantity": 144, "reference": "DN-20101201-7"},
    AdjustmentRequest: {"quantity": -3, "reason": "broken in the warehouse"},
}
_SKU = Parameter("sku", "path", "The stock keeping unit.", ID_SCHEMA, example=SKU)


def described() -> dict[str, Any]:
    """The document; a snapshot of it is kept by a test."""
    return document(
        "Daybook stock",
        "Take deliveries and correct the stock. An answer of 2xx means that the events are in the log.",
        [
            _change("receipts", "Take a delivery", ReceiptRequest, "bad_quantity"),
            _change("adjustments", "Write off or find units", AdjustmentRequest, "below_reserved"),
        ],
    )


def _change(path: str, summary: str, body: type, refused: str) -> Operation:
    changed = {"sku": SKU, "version": 1, "status": "stocked", "command_id": COMMAND_ID}
    return Operation(
        "POST",
        f"/stock/{{sku}}/{path}",
        summary,
        {
            200: done("Done, or it was so already", StockAnswer, changed),
            409: refusal("Refused; `code` says why", 409, refused, sku=SKU),
            **failures("sku", SKU),
        },
        (_SKU, *WRITE_PARAMETERS),
        body,
        EXAMPLES[body],
    )
