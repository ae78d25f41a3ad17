"""One entity in memory, and what a snapshot says of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from contracts.kernel.records import Remembered

State = TypeVar("State")

# In place of an expected version: the entity must exist; nothing matches (a weak entity tag never does).
ANY_VERSION, NO_VERSION = -1, -2


class Entity(NamedTuple, Generic[State]):
    """An entity as of its last committed event; version 0: it does not exist. `recorded_at` in micros UTC."""

    state: State
    version: int
    recorded_at: int


def unexpected(expected: int | None, version: int) -> str:
    """Why an entity at `version` is not what If-Match demanded; empty where it is."""
    match expected:
        case None:
            return ""
        case _ if expected == ANY_VERSION:
            return "" if version else "it does not exist"
        case _ if expected == NO_VERSION:
            return f"a weak entity tag matches nothing, it is at version {version}"
        case _:
            return "" if expected == version else f"expected version {expected}, it is {version}"


class LoadedEntity(NamedTuple, Generic[State]):
    """What a snapshot holds; `read_to` and `unread` as in `Snapshot`."""

    entity: Entity[State]
    outcomes: Iterable[Remembered]
    read_to: int = 0
    unread: int = 0
