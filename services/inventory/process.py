"""Stock asks nothing of anybody: it only answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contracts.inventory.events import InventoryEvent
from services.inventory.domain.state import Stock
from services.kernel.process import Answered, Ask, Process


def react(_event: InventoryEvent, _stock: Stock) -> Sequence[Ask]:
    return ()


def pending(_stock: Stock) -> Sequence[Ask]:
    return ()


def record(sku: str, answered: Sequence[Answered]) -> Sequence[Any]:
    """Raises ValueError: nobody was asked."""
    raise ValueError(f"stock {sku} asked for nothing, and was answered {answered}")


def deadline(_stock: Stock) -> int | None:
    return None


def expire(sku: str, _now: int) -> Any:
    """Raises ValueError: stock has no deadline."""
    raise ValueError(f"stock {sku} does not expire")


def is_open(_stock: Stock) -> bool:
    return False


inventory_process: Process[Stock, InventoryEvent] = Process(
    react=react, pending=pending, record=record, deadline=deadline, expire=expire, is_open=is_open
)
