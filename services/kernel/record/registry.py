"""Schema ids and the classes behind them, from the committed lock. Read once; no registry has to be up."""

from __future__ import annotations

from functools import cache

from contracts.lock import load_lock
from contracts.records import RECORDS


@cache
def schema_id(topic: str, type_name: str) -> int:
    """The id under which records of this type are written to `topic`. Raises KeyError."""
    return load_lock().id_of(f"{topic}-{type_name}")


@cache
def topic_of(type_name: str) -> str:
    """The one topic of a command or an event. Raises KeyError."""
    return load_lock().topic_of(type_name)


def record_class(schema: int) -> type:
    """The dataclass that a schema id is read into. Raises KeyError for an id that is not in the lock."""
    return RECORDS[load_lock().type_of(schema)]
