"""The one oracle of stock and money, without code of the domain: the checker applies events to it, the expectation of a
load the steps of the input."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Ledger:
    """The units of one SKU; `reservations` by order."""

    received: int = 0
    adjusted: int = 0
    issued: int = 0
    returned: int = 0
    reservations: dict[str, int] = field(default_factory=dict)

    @property
    def on_hand(self) -> int:
        return self.received + self.adjusted + self.returned - self.issued

    @property
    def reserved(self) -> int:
        return sum(self.reservations.values())

    def end(self, order_id: str) -> int:
        """End the reservation of an order. Returns its units, 0 where there is none."""
        return self.reservations.pop(order_id, 0)


class _Line(Protocol):
    @property
    def quantity(self) -> int: ...
    @property
    def unit_price(self) -> int: ...


class _Charge(Protocol):
    @property
    def amount(self) -> int: ...


def goods_value(lines: Iterable[_Line]) -> int:
    """In the units of the prices."""
    return sum(line.quantity * line.unit_price for line in lines)


def gross(lines: Iterable[_Line], charges: Iterable[_Charge]) -> int:
    """Goods and charges; a discount is a negative charge."""
    return goods_value(lines) + sum(charge.amount for charge in charges)
