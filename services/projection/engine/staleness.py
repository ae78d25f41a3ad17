"""Stale rows: their key is parked behind an event that could not be applied.

A response that contains such a row says so, until an operator decides (`./daybook parked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from services.edge.problems import Problem
from services.projection.engine.read_model import Connection, ReadModel

Stale: TypeAlias = Literal["parked"] | None
PARKED: Stale = "parked"
_KEYS = """
SELECT n.key FROM unnest($2::text[]) AS n(key)
WHERE EXISTS (SELECT FROM parked p WHERE p.read_model = $1 AND p.key = n.key)"""
_ANY = "SELECT EXISTS (SELECT FROM parked WHERE read_model = $1)"


async def stale_keys(connection: Connection, model: ReadModel[Any], keys: Sequence[str]) -> frozenset[str]:
    """Returns those of `keys` that are parked in the read model."""
    return frozenset(row["key"] for row in await connection.fetch(_KEYS, model.name, list(keys)))


async def stale(connection: Connection, model: ReadModel[Any], key: str | None = None) -> Stale:
    """Tells whether the key is parked in the read model; without a key, whether any key is."""
    if key is None:
        return PARKED if await connection.fetchval(_ANY, model.name) else None
    return PARKED if await stale_keys(connection, model, [key]) else None


def key_parked(model: ReadModel[Any], key: str, what: str) -> Problem:
    """Returns a 503 without Retry-After: an operator must decide first."""
    detail = (
        f"{what} waits in {model.name} behind an event that could not be applied; it is in the log, and an "
        f"operator has to decide: `./daybook parked show {model.name}:{key}`"
    )
    return Problem(503, "key_parked", detail)
