"""Each read model's fold: events in, row out."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from contracts.inventory.events import (
    StockAdjusted,
    StockIssued,
    StockReceived,
    StockReleased,
    StockReserved,
    StockReturned,
)
from contracts.order.events import (
    Charge,
    Line,
    Movement,
    MovementsRecorded,
    OrderCancelled,
    OrderConfirmed,
    OrderExpired,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
    RefundedLine,
    ReservationsRecorded,
)
from services.kernel.record.envelope import Envelope, Metadata
from services.projection.conversations.fold import Awaited
from services.projection.engine.read_model import ReadModel, Versioned
from services.projection.engine.row_fold import extend, versioned
from services.projection.engine.visibility import epoch_of
from services.projection.orders.fold import Content, NeverPlaced
from services.projection.read_models import (
    CONVERSATIONS,
    ORDER_HISTORY,
    ORDERS,
    READ_MODELS,
    SALES_DAILY,
    STOCK,
)
from services.projection.sales_daily.fold import Change, Day
from services.projection.sales_daily.store import total

DAY = 86_400_000_000
AT = 14_944 * DAY + 5  # 2010-12-01
LINES = (Line("a", 2, 1_000_000), Line("b", 1, 500_000), Line("a", 1, 1_000_000))
CHARGES = (Charge("POST", 250_000),)
PLACED = OrderPlaced("o-1", "France", "EUR", AT, LINES, "c-1", CHARGES, 3_750_000)
CONFIRMED = OrderConfirmed("o-1", AT, ("a", "b"), "France", "EUR", 4, 3_750_000)
SHIPPED = OrderShipped("o-1", AT + DAY, ("a", "b"), "post", "r-1")
RETURNED = OrderReturned(
    "o-1", AT + 2 * DAY, 1, "broken", "France", "EUR", (RefundedLine("a", 2, 2_000_000),), 2, 2_000_000, False
)
CANCELLED = OrderCancelled("o-1", AT + DAY, "late", True, AT, "France", "EUR", 4, 3_750_000, ("a", "b"))


def envelope(version: int, body: Any, epoch: int = 1) -> Envelope[Any]:
    metadata = Metadata(
        id=f"event-{version}",
        type=body.TYPE,
        subject=getattr(body, "order_id", "") or body.sku,
        source="daybook/test",
        recorded_at=1_000_000 * version,
        correlation_id="conversation",
        causation_id="command",
        epoch=epoch,
        version=version,
    )
    return Envelope(metadata, body)


def fold(model: ReadModel[Any], *bodies: Any) -> Any:
    events = [envelope(version, body) for version, body in enumerate(bodies, start=1)]
    return folded(model, events).row


def folded(model: ReadModel[Any], events: list[Envelope[Any]]) -> Versioned[Any]:
    row: Versioned[Any] | None = None
    for event in events:
        row = versioned(model.fold, row, event)
    assert row
    return row


def test_an_order_as_it_was_placed() -> None:
    order = fold(ORDERS, PLACED)
    assert (order.status, order.units, order.gross, order.placed_at) == ("placed", 4, 3_750_000, AT)
    assert order.content == Content(LINES, CHARGES)


@pytest.mark.parametrize(
    ("bodies", "status"),
    [
        ([ReservationsRecorded("o-1", AT, ("a",))], "placed"),
        ([CONFIRMED], "confirmed"),
        ([OrderRejected("o-1", AT, ("b",), ("a",))], "rejected"),
        ([OrderExpired("o-1", AT, ("a", "b"))], "expired"),
        ([CONFIRMED, CANCELLED], "cancelled"),
        ([CONFIRMED, SHIPPED], "shipped"),
        ([CONFIRMED, SHIPPED, MovementsRecorded("o-1", AT, ())], "shipped"),
        ([CONFIRMED, SHIPPED, RETURNED], "partly_returned"),
    ],
)
def test_the_status_of_an_order(bodies: list[Any], status: str) -> None:
    assert fold(ORDERS, PLACED, *bodies).status == status


@pytest.mark.parametrize("model", [model for model in READ_MODELS if model.stream == "order"])
def test_the_engine_manages_version_event_lineage_and_time(model: ReadModel[Any]) -> None:
    row = folded(model, [envelope(1, PLACED), envelope(2, CONFIRMED), envelope(3, SHIPPED, epoch=4)])
    assert row[1:] == (3, "event-3", ((1, 1), (4, 3)), 3_000_000)


def test_what_came_back_is_counted_by_sku() -> None:
    rest = (RefundedLine("a", 1, 1_000_000), RefundedLine("b", 1, 500_000))
    last = OrderReturned("o-1", AT + 3 * DAY, 2, "late", "France", "EUR", rest, 2, 1_500_000, True)
    order = fold(ORDERS, PLACED, CONFIRMED, SHIPPED, RETURNED, last)
    assert (order.status, order.refunded, order.returned) == ("returned", 3_500_000, {"a": 3, "b": 1})


def test_an_order_begins_with_being_placed() -> None:
    with pytest.raises(NeverPlaced):
        fold(ORDERS, CONFIRMED)


def test_stock_counts() -> None:
    stock = fold(
        STOCK,
        StockReceived("a", 100, "delivery", AT),
        StockAdjusted("a", -3, "broken", AT),
        StockReserved("a", "o-1", 10, AT),
        StockReserved("a", "o-2", 5, AT),
        StockReleased("a", "o-2", 5, AT),
        StockIssued("a", "o-1", 10, AT),
        StockReturned("a", "o-1", 1, 4, AT),
    )
    assert (stock.on_hand, stock.reserved, stock.available) == (91, 0, 91)


def test_a_confirmed_order_counts_on_its_day_and_a_return_on_the_day_of_the_return() -> None:
    placed, back = Day(date(2010, 12, 1), "France", "EUR"), Day(date(2010, 12, 3), "France", "EUR")
    sales = fold(SALES_DAILY, PLACED, CONFIRMED, SHIPPED, RETURNED)
    assert sales.changes == (Change(placed, 1, 4, 3_750_000), Change(back, returned=2_000_000))


def test_a_cancelled_order_is_taken_back_from_its_own_day() -> None:
    assert total(fold(SALES_DAILY, PLACED, CONFIRMED, CANCELLED).changes) == [
        Change(Day(date(2010, 12, 1), "France", "EUR"))
    ]
    unconfirmed = OrderCancelled("o-1", AT, "late", False, AT, "France", "EUR", 4, 3_750_000, ())
    assert fold(SALES_DAILY, PLACED, unconfirmed).changes == ()


def test_a_history_keeps_every_event_as_plain_values() -> None:
    history = fold(ORDER_HISTORY, PLACED, CONFIRMED)
    first = history.entries[0]
    assert [entry.version for entry in history.entries] == [1, 2]
    assert first.body["lines"][0] == {"sku": "a", "quantity": 2, "unit_price": 1_000_000}
    assert (first.type, first.recorded_at, first.occurred_at) == ("daybook.order.OrderPlaced", 1_000_000, AT)


def awaited(*bodies: Any) -> list[tuple[str, str, int]]:
    return [reply[:3] for reply in fold(CONVERSATIONS, *bodies).awaits]


def test_what_an_order_waits_for() -> None:
    assert awaited(PLACED) == [("reserve", "a", 0), ("reserve", "b", 0)]
    assert awaited(PLACED, ReservationsRecorded("o-1", AT, ("a",))) == [("reserve", "b", 0)]
    assert awaited(PLACED, CONFIRMED) == []
    assert awaited(PLACED, OrderRejected("o-1", AT, ("b",), ("a",))) == [("release", "a", 0)]
    assert awaited(PLACED, OrderExpired("o-1", AT, ("a", "b"))) == [("release", "a", 0), ("release", "b", 0)]
    assert awaited(PLACED, CONFIRMED, CANCELLED) == [("release", "a", 0), ("release", "b", 0)]
    issued = MovementsRecorded("o-1", AT, (Movement("issue", "a", 0, True, ""),))
    assert awaited(PLACED, CONFIRMED, SHIPPED, issued) == [("issue", "b", 0)]
    assert awaited(PLACED, CONFIRMED, SHIPPED, issued, RETURNED) == [("issue", "b", 0), ("return", "a", 1)]


def test_an_order_waits_since_its_oldest_pending_command() -> None:
    issued = MovementsRecorded("o-1", AT, (Movement("issue", "a", 0, True, ""),))
    conversation = fold(CONVERSATIONS, PLACED, CONFIRMED, SHIPPED, issued, RETURNED)
    assert conversation.since == 3_000_000
    assert conversation.awaits[-1] == Awaited("return", "a", 1, 5_000_000)
    assert fold(CONVERSATIONS, PLACED, CONFIRMED).since is None


def test_a_lineage_tells_which_epoch_wrote_a_version() -> None:
    lineage = extend(extend(extend((), 1, 1), 1, 2), 3, 3)
    assert lineage == ((1, 1), (3, 3))
    assert [epoch_of(lineage, version) for version in (0, 1, 2, 3, 9)] == [0, 1, 1, 3, 3]
