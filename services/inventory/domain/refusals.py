"""The refusals of stock: every code is public and stable, with a reason for people."""

from __future__ import annotations

from enum import Enum

from services.kernel.model.decider import Refused


class StockRefusal(Enum):
    """One member per code; the code is the name in lower case, the value is the reason."""

    BAD_QUANTITY = "a quantity is at least 1"
    ZERO_ADJUSTMENT = "an adjustment of 0 changes nothing"
    BELOW_RESERVED = "the stock would fall below what is reserved for orders"
    INSUFFICIENT_STOCK = "fewer units are available than requested"
    RESERVATION_CLOSED = "the order's reservation was released before"
    RESERVATION_DIFFERS = "the order has reserved another quantity"
    NOT_RESERVED = "nothing is reserved for the order"

    def refused(self, detail: str = "") -> Refused:
        """Returns the refusal to raise; `detail` is added to the reason."""
        return Refused(self.name.lower(), f"{self.value} ({detail})" if detail else self.value)
