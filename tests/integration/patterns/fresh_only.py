"""A late consumer skips stale records: for a live board, never for a read model.

Correct only if each record contains the whole value and replaces the one before it: a price, a temperature, a
position. Stock events are *changes* and orders are *histories*: a consumer that skips one of them stays wrong,
and a read model parks the entity, because its stream has a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Message

from contracts.order.events import OrderPlaced
from services.kernel.record.codec import decode
from services.kernel.record.envelope import Malformed, now_micros, read_headers


class FreshOnly:
    """Passes records that are younger than `seconds` by their recorded time, and counts the others.

    Publish the count as a metric of the consumer: a board that skips is current, not complete.
    """

    def __init__(self, seconds: float, clock: Callable[[], int] = now_micros) -> None:
        self._micros, self._clock = int(seconds * 1_000_000), clock
        self.skipped = 0

    def passes(self, recorded_at: int) -> bool:
        """`recorded_at` is `ce_time` in micros, by the writer's clock; business time does not show lateness."""
        if self._clock() - recorded_at <= self._micros:
            return True
        self.skipped += 1
        return False


@dataclass(frozen=True)
class Price:
    """The last price of one unit, in micros of the currency, and when it was recorded (micros UTC)."""

    unit_price: int
    currency: str
    recorded_at: int


class PriceBoard:
    """The last price paid for each SKU, live from `order.events`, from the last `seconds` only."""

    def __init__(self, seconds: float, clock: Callable[[], int] = now_micros) -> None:
        self.fresh = FreshOnly(seconds, clock)
        self.prices: dict[str, Price] = {}

    def see(self, record: Message) -> None:
        """Processes one record of the log. The headers show that a record is stale: it is not decoded. A record
        without an envelope is foreign."""
        try:
            metadata = read_headers(record.headers())
        except Malformed:
            return
        if metadata.type != OrderPlaced.TYPE or not self.fresh.passes(metadata.recorded_at):
            return
        placed: OrderPlaced = decode(record.value() or b"")
        for line in placed.lines:
            shown = self.prices.get(line.sku)
            # orders arrive from several partitions, in any order
            if shown is None or shown.recorded_at <= metadata.recorded_at:
                self.prices[line.sku] = Price(line.unit_price, placed.currency, metadata.recorded_at)
