"""What the query API answers, as it stands in JSON. Money is a decimal string, times are RFC 3339 in UTC.

`stale` is null, or `parked`: an event of the row could not be applied, and later ones wait behind it. Of a
page it says that some key of the read model waits: rows may be old, or missing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.projection.stale import Stale


class LineAnswer(msgspec.Struct):
    sku: str
    quantity: int
    unit_price: str


class ChargeAnswer(msgspec.Struct):
    code: str
    amount: str


class OrderSummary(msgspec.Struct, kw_only=True):
    """`gross` as ordered, `net` after refunds. `stale`: `parked` where later events wait for an operator."""

    order_id: str
    version: int
    status: str
    customer_id: str | None
    country: str
    currency: str
    placed_at: str
    changed_at: str
    units: int
    gross: str
    refunded: str
    net: str
    stale: Stale = None


class OrderAnswer(OrderSummary, kw_only=True):
    """`returned`: units by SKU; `short`: the SKUs for which it was rejected."""

    lines: list[LineAnswer]
    charges: list[ChargeAnswer]
    returned: dict[str, int]
    short: list[str]
    carrier: str | None
    reference: str | None
    reason: str | None


class OrderPage(msgspec.Struct):
    orders: list[OrderSummary]
    next: str | None
    stale: Stale = None


class EntryAnswer(msgspec.Struct, kw_only=True):
    """One event: `recorded_at` is when we knew, `occurred_at` when it was so."""

    version: int
    event_id: str
    type: str
    recorded_at: str
    occurred_at: str
    epoch: int
    source: str
    correlation_id: str
    causation_id: str
    body: dict[str, Any]


class HistoryPage(msgspec.Struct):
    order_id: str
    events: list[EntryAnswer]
    next: str | None
    stale: Stale = None


class StockAnswer(msgspec.Struct, kw_only=True):
    """Units. `on_hand` = received + adjusted + returned − issued; `available` = on_hand − reserved."""

    sku: str
    version: int
    changed_at: str
    on_hand: int
    reserved: int
    available: int
    received: int
    adjusted: int
    returned: int
    issued: int
    stale: Stale = None


class StockPage(msgspec.Struct):
    stock: list[StockAnswer]
    next: str | None
    stale: Stale = None


class SalesDay(msgspec.Struct, kw_only=True):
    day: str
    country: str
    currency: str
    orders: int
    units: int
    gross: str
    returned: str
    net: str


class SalesPage(msgspec.Struct):
    days: list[SalesDay]
    next: str | None
    stale: Stale = None


class AwaitedAnswer(msgspec.Struct):
    """`step`: reserve, release, issue, or return with its number."""

    step: str
    sku: str
    return_number: int
    since: str


class StuckConversation(msgspec.Struct):
    order_id: str
    version: int
    since: str
    awaits: list[AwaitedAnswer]
    stale: Stale = None


class StuckPage(msgspec.Struct):
    conversations: list[StuckConversation]
    next: str | None
    stale: Stale = None


class PartitionAnswer(msgspec.Struct):
    """`position`: the next offset to apply; `applied_at`: when it moved last.

    The lag is that of `observed_at`: the events that are not applied (above 500 a bound), and the age of the
    oldest. It is null where it is not known, and for a read model that is being built again.
    """

    topic: str
    partition: int
    position: int
    epoch: int
    applied_at: str
    lag_events: int | None
    lag_seconds: float | None
    observed_at: str | None


class ProjectionAnswer(msgspec.Struct):
    """`parked_keys`: entities that wait behind an event that cannot be applied; `parked_events`: theirs."""

    read_model: str
    parked_keys: int
    parked_events: int
    partitions: list[PartitionAnswer]


class ProjectionsAnswer(msgspec.Struct):
    projections: list[ProjectionAnswer]
