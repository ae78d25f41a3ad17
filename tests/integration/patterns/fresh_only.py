"""A consumer that is late skips what is stale: a live board, never a read model.

Allowed only where each record tells the whole value, so that the next one makes the last one worthless: a
price that was paid, a temperature, a position. Stock events are *changes*, orders are *histories*: who skips
one of those is wrong for ever, and a read model parks the entity: its stream has forked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Message

from contracts.order.events import OrderPlaced
from services.kernel.record.codec import decode
from services.kernel.record.envelope import Malformed, now_micros, read_headers


class FreshOnly:
    """Lets records pass that are younger than `seconds` by their recorded time, and counts the others.

    The count belongs on the consumer's page of metrics: a board that skips is up to date, not complete.
    """

    def __init__(self, seconds: float, clock: Callable[[], int] = now_micros) -> None:
        self._micros, self._clock = int(seconds * 1_000_000), clock
        self.skipped = 0

    def passes(self, recorded_at: int) -> bool:
        """`recorded_at` is `ce_time` in micros, by the writer's clock; business time tells no lateness."""
        if self._clock() - recorded_at <= self._micros:
            return True
        self.skipped += 1
        return False


@dataclass(frozen=True)
class Price:
    """What one unit was last sold at: micros of the currency, and when that was recorded (micros UTC)."""

    unit_price: int
    currency: str
    recorded_at: int


class PriceBoard:
    """The last price paid for each SKU, live from `order.events`, of the last `seconds` alone."""

    def __init__(self, seconds: float, clock: Callable[[], int] = now_micros) -> None:
        self.fresh = FreshOnly(seconds, clock)
        self.prices: dict[str, Price] = {}

    def see(self, record: Message) -> None:
        """One record of the log. A stale one is told by its headers, and not even decoded; one without an
        envelope is not of the log."""
        try:
            metadata = read_headers(record.headers())
        except Malformed:
            return
        if metadata.type != OrderPlaced.TYPE or not self.fresh.passes(metadata.recorded_at):
            return
        placed: OrderPlaced = decode(record.value() or b"")
        for line in placed.lines:
            shown = self.prices.get(line.sku)
            # orders come from several partitions: arrival is no order
            if shown is None or shown.recorded_at <= metadata.recorded_at:
                self.prices[line.sku] = Price(line.unit_price, placed.currency, metadata.recorded_at)
