"""Lives of orders and of stock, drawn by a seed, that reach the log in rounds: each round continues some of them."""

import random
from collections.abc import Iterator
from typing import Any

from contracts.inventory.events import (
    StockAdjusted,
    StockIssued,
    StockReceived,
    StockReleased,
    StockReserved,
    StockReturned,
)
from contracts.order.events import (
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
from tests.integration.analytics.log_writer import Topics, entity_of, write, writer

DAY = 86_400_000_000
AT = 1_298_937_600_000_000
PRICE = 2_550_000
SKUS = ("A", "B", "C", "D", "E")
CUSTOMERS = (None, None, "c-1", "c-2", "c-3", "c-4")


def life(order_id: str, draw: random.Random) -> Iterator[Any]:
    """The events of one order, and those of stock that belong to it, in their order."""
    origin: dict[str, Any] = {
        "country": draw.choice(("Norway", "France")),
        "currency": draw.choice(("GBP", "EUR")),
    }
    at = AT + draw.randrange(270) * DAY + draw.randrange(DAY)
    skus = tuple(sorted(draw.sample(SKUS, draw.randrange(1, 4))))
    lines = tuple(Line(sku, draw.randrange(1, 5), PRICE) for sku in skus)
    units = sum(line.quantity for line in lines)
    worth = origin | {"units": units, "gross": units * PRICE}
    yield OrderPlaced(
        order_id,
        **origin,
        occurred_at=at,
        lines=lines,
        customer_id=draw.choice(CUSTOMERS),
        gross=units * PRICE,
    )
    fate = draw.choice(("placed", "rejected", "expired", "given up", "undone", *["shipped"] * 4))
    if fate == "expired":
        yield OrderExpired(order_id, at + DAY, release=skus)
    if fate == "given up":
        yield OrderCancelled(
            order_id, occurred_at=at, reason="", confirmed=False, placed_at=at, release=skus, **worth
        )
    if fate in ("placed", "expired", "given up"):
        return
    for line in lines[1:]:
        yield StockReserved(line.sku, order_id, line.quantity, at)
        yield ReservationsRecorded(order_id, at, (line.sku,))
    if fate == "rejected":
        yield OrderRejected(order_id, at, short=(skus[0],), release=skus[1:])
        for line in lines[1:]:
            yield StockReleased(line.sku, order_id, line.quantity, at)
        return
    yield StockReserved(skus[0], order_id, lines[0].quantity, at)
    yield OrderConfirmed(order_id, occurred_at=at, reserved=skus[:1], **worth)
    if fate == "undone":
        yield OrderCancelled(
            order_id, occurred_at=at + DAY, reason="", confirmed=True, placed_at=at, release=skus, **worth
        )
        return
    yield OrderShipped(order_id, at + 2 * DAY, issue=skus)
    for line in lines:
        yield StockIssued(line.sku, order_id, line.quantity, at + 2 * DAY)
    yield MovementsRecorded(
        order_id, at + 2 * DAY, tuple(Movement("issue", sku, 0, True, "") for sku in skus)
    )
    for number in range(1, 1 + min(draw.randrange(3), lines[0].quantity)):
        back = at + (3 + number * 20) * DAY
        refunded = RefundedLine(skus[0], 1, PRICE)
        yield OrderReturned(
            order_id,
            occurred_at=back,
            return_number=number,
            reason="",
            lines=(refunded,),
            units=1,
            refund=PRICE,
            complete=units == number,
            **origin,
        )
        yield StockReturned(skus[0], order_id, number, 1, back)


class GrowingShop:
    """A log that grows by `grow`. `seed` determines everything."""

    def __init__(self, kafka: str, topics: Topics, seed: int) -> None:
        self._kafka, self._topics, self._draw = kafka, topics, random.Random(seed)
        self._open: list[Iterator[Any]] = [self._opening()]
        self._orders = 0
        self._versions: dict[tuple[str, str], int] = {}

    def grow(self, orders: int, events: int) -> None:
        """Begins so many orders, and writes about so many of the events that all orders still have."""
        for _ in range(orders):
            self._orders += 1
            self._open.append(life(f"o-{self._orders}", random.Random(self._draw.random())))
        with writer(self._kafka) as producer:
            producer.begin_transaction()
            for _ in range(events):
                self._write_next(producer)
            producer.commit_transaction(30)

    @staticmethod
    def _opening() -> Iterator[Any]:
        yield from (StockReceived(sku, 1_000, "opening", AT) for sku in SKUS)
        yield from (StockAdjusted(sku, -3, "counted", AT + 100 * DAY) for sku in SKUS)

    def _write_next(self, producer: Any) -> None:
        if not self._open:
            return
        stream = self._draw.choice(self._open)
        if (event := next(stream, None)) is None:
            self._open.remove(stream)
            return
        topic = self._topics.orders if "daybook.order." in event.TYPE else self._topics.inventory
        entity = (topic, entity_of(event))
        self._versions[entity] = self._versions.get(entity, 0) + 1
        write(producer, topic, event, self._versions[entity])
