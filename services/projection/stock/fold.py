"""The stock of a SKU: one row per SKU, folded from its events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from contracts.inventory.events import (
    StockAdjusted,
    StockIssued,
    StockReceived,
    StockReleased,
    StockReserved,
    StockReturned,
)
from services.kernel.record.envelope import Metadata


@dataclass(frozen=True)
class StockRow:
    """Units: `reserved` is what is held now, the others are totals since the beginning."""

    sku: str
    received: int = 0
    adjusted: int = 0
    returned: int = 0
    issued: int = 0
    reserved: int = 0

    @property
    def on_hand(self) -> int:
        return self.received + self.adjusted + self.returned - self.issued

    @property
    def available(self) -> int:
        return self.on_hand - self.reserved


def fold(row: StockRow | None, event: Any, metadata: Metadata) -> StockRow:
    """The stock after the event. Raises ValueError for an event that is not of stock."""
    before = row or StockRow(metadata.subject)
    return replace(before, **changes(before, event))


def changes(row: StockRow, event: Any) -> dict[str, Any]:
    match event:
        case StockReceived(quantity=units):
            return {"received": row.received + units}
        case StockAdjusted(quantity=units):
            return {"adjusted": row.adjusted + units}
        case StockReserved(quantity=units):
            return {"reserved": row.reserved + units}
        case StockReleased(quantity=units):
            return {"reserved": row.reserved - units}
        case StockIssued(quantity=units):
            return {"reserved": row.reserved - units, "issued": row.issued + units}
        case StockReturned(quantity=units):
            return {"returned": row.returned + units}
        case _:
            raise ValueError(f"not an event of stock: {event!r}")
