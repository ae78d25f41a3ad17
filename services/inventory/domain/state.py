"""The stock of one SKU, as its events say. Plain types only: a snapshot is this dataclass in MessagePack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from services.kernel.model.map import Map


@dataclass(frozen=True, slots=True)
class Stock:
    """One SKU; all quantities are units.

    `on_hand == received + adjusted + returned - issued` (I7) and `reserved == sum(reservations.values())`.
    `reservations` holds the units of each order; `closed` says which steps of which orders came to their end,
    and at which version of this stock (see `closed_key`), so that late and repeated commands are recognised.
    """

    version: int = 0
    on_hand: int = 0
    reserved: int = 0
    received: int = 0
    adjusted: int = 0
    returned: int = 0
    issued: int = 0
    reservations: Map = field(default_factory=Map)
    closed: Map = field(default_factory=Map)

    @property
    def available(self) -> int:
        """What the next order can have; never below zero."""
        return self.on_hand - self.reserved


def closed_key(step: str, order_id: str) -> str:
    """The name of an order's step in `Stock.closed`: `release`, `issue` or `return.<number>`.

    The step stands first, because an order id may contain anything.
    """
    return f"{step}/{order_id}"


def return_step(number: int) -> str:
    """The step of an order's return; numbers are 1-based."""
    return f"return.{number}"


def forget(stock: Stock, version: int) -> Stock:
    """Without the closed steps of `version` and before: their commands cannot come again."""
    kept = stock.closed.above(version)
    return stock if kept is stock.closed else replace(stock, closed=kept)
