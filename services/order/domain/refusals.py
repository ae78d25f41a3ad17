"""The refusals of orders: every code is public and stable, with a reason for people."""

from __future__ import annotations

from enum import Enum

from services.kernel.model.decider import Refused


class OrderRefusal(Enum):
    """One member per code; the code is the name in lower case, the value is the reason."""

    ORDER_NOT_FOUND = "there is no such order"
    ORDER_EXISTS = "an order of this id was placed before"
    EMPTY_ORDER = "an order has at least one line"
    BAD_QUANTITY = "a quantity is at least 1"
    NEGATIVE_PRICE = "a unit price is at least 0"
    TOO_MANY_UNITS = "an order has at most 2,147,483,647 units"
    AMOUNT_TOO_LARGE = "the order's amount does not fit into 64 bits of micros"
    NOT_CONFIRMED = "the order is not confirmed yet"
    ALREADY_SETTLED = "the order was settled before"
    ALREADY_REJECTED = "the order was rejected"
    ALREADY_CANCELLED = "the order was cancelled"
    ALREADY_EXPIRED = "the order expired"
    ALREADY_SHIPPED = "the order has already shipped: create a return instead"
    NOT_DUE = "the order's time to settle is not over"
    NOT_SHIPPED = "only what was shipped can be returned"
    EMPTY_RETURN = "a return has at least one line"
    SKU_NOT_IN_ORDER = "the order has no such SKU"
    RETURNED_TOO_MUCH = "more units than the customer still has"
    NOTHING_TO_RETURN = "everything was returned before"

    def refused(self, detail: str = "") -> Refused:
        """Returns the refusal to raise; `detail` is added to the reason."""
        return Refused(self.name.lower(), f"{self.value} ({detail})" if detail else self.value)
