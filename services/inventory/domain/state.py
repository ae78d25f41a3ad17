"""The stock of one SKU. Plain types only: a snapshot is this dataclass in MessagePack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from services.kernel.model.map import Map


@dataclass(frozen=True, slots=True)
class Stock:
    """One SKU; all quantities are units.

    `on_hand == received + adjusted + returned - issued` (I7) and `reserved == sum(reservations.values())`.
    `reservations`: units by order. `closed`: the ended steps of orders (see `closed_key`) with the version of
    this stock at which each ended, so that late and repeated commands are recognised.
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
        """Units that the next order can reserve; never below zero."""
        return self.on_hand - self.reserved


def closed_key(step: str, order_id: str) -> str:
    """Returns the name of an order's step in `Stock.closed`: `release`, `issue` or `return.<number>`. The step comes
    first, because an order id may contain any character."""
    return f"{step}/{order_id}"


def return_step(number: int) -> str:
    """Returns the step of an order's return; numbers start at 1."""
    return f"return.{number}"


def forget(stock: Stock, version: int) -> Stock:
    """Removes the closed steps up to `version`: their commands cannot arrive any more."""
    kept = stock.closed.above(version)
    return stock if kept is stock.closed else replace(stock, closed=kept)
