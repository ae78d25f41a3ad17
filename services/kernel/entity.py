"""One entity in memory, and how long what it answered is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from contracts.kernel.records import Remembered

State = TypeVar("State")

MICROS_PER_HOUR = 3_600_000_000


class Entity(NamedTuple, Generic[State]):
    """An entity as of its last committed event; version 0: it does not exist. `recorded_at` in micros UTC."""

    state: State
    version: int
    recorded_at: int


class Window(NamedTuple):
    """The retry window: answers older than `hours`, or beyond a partition's newest `most`, are forgotten."""

    hours: float
    most: int

    def begins(self, now: int) -> int:
        return now - int(self.hours * MICROS_PER_HOUR)


class Thawed(NamedTuple, Generic[State]):
    """What a snapshot holds; `read_to` and `unread` as in `Snapshot`."""

    entity: Entity[State]
    answers: Iterable[Remembered]
    read_to: int = 0
    unread: int = 0
