"""What a load does to the shop, in the shop's words; `requests.py` says it over HTTP."""

from dataclasses import dataclass
from datetime import datetime

from infra.lab.retail.invoices import InvoiceCharge, InvoiceLine


@dataclass(frozen=True, slots=True)
class Receive:
    """A delivery of stock: the opening stock or a month's replenishment."""

    at: datetime
    sku: str
    quantity: int
    reference: str


@dataclass(frozen=True, slots=True)
class Adjust:
    """A write-off (negative) or a find; `number` names it in the data."""

    at: datetime
    sku: str
    quantity: int
    number: str
    reason: str


@dataclass(frozen=True, slots=True)
class Place:
    """An order; `order_id` is the invoice's number."""

    at: datetime
    order_id: str
    customer_id: str | None
    country: str
    lines: tuple[InvoiceLine, ...]
    charges: tuple[InvoiceCharge, ...]


@dataclass(frozen=True, slots=True)
class Ship:
    """Hand a confirmed order to the carrier."""

    at: datetime
    order_id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel an order before it is shipped; `credit` is the number of the credit note."""

    at: datetime
    order_id: str
    credit: str


@dataclass(frozen=True, slots=True)
class Return:
    """Goods of one shipped order come back; `lines` are (SKU, units), each SKU once."""

    at: datetime
    order_id: str
    credit: str
    lines: tuple[tuple[str, int], ...]


StockStep = Receive | Adjust
OrderStep = Place | Ship | Cancel | Return
Step = StockStep | OrderStep


@dataclass(frozen=True, slots=True)
class Chain:
    """One order's life, in order; each step waits for the one before it."""

    order_id: str
    steps: tuple[OrderStep, ...]
