"""Whether the read models of both sites are equal, key by key: a digest of each row."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg

from infra.base.waiting import TooLate, wait_until
from infra.stack.site import Site
from services.projection.read_models import READ_MODELS

# Every table of the read models, with the columns of its primary key.
_TABLES = """
SELECT table_schema || '.' || table_name, array_agg(column_name::text ORDER BY ordinal_position)
FROM information_schema.key_column_usage
JOIN information_schema.table_constraints USING (constraint_name, table_schema, table_name)
WHERE constraint_type = 'PRIMARY KEY' AND table_schema = ANY($1) GROUP BY 1 ORDER BY 1"""
PATIENCE_SECONDS = 60.0


async def digests(url: str) -> dict[str, str]:
    """`table key` → digest of the row."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        found: dict[str, str] = {}
        for table, key in await connection.fetch(_TABLES, [model.name for model in READ_MODELS]):
            rows = f"SELECT concat_ws('/', {', '.join(key)}), md5(t::text) FROM {table} t"
            found |= {f"{table} {shown}": digest for shown, digest in await connection.fetch(rows)}
        return found
    finally:
        await connection.close()


async def differences(one: Site, other: Site) -> tuple[int, list[str]]:
    """How many keys there are, and those that differ or are at one site only."""
    here, there = await asyncio.gather(digests(one.database_url), digests(other.database_url))
    keys = here.keys() | there.keys()
    return len(keys), sorted(key for key in keys if here.get(key) != there.get(key))


def settled_differences(one: Site, other: Site, seconds: float = PATIENCE_SECONDS) -> tuple[int, list[str]]:
    """The same, once they are equal or `seconds` have passed: the passive site's follow the mirror."""
    found = (0, list[str]())

    def differing() -> list[str]:
        nonlocal found
        found = asyncio.run(differences(one, other))
        return found[1]

    with suppress(TooLate):
        wait_until(differing, "the read models are equal", seconds, enough=lambda keys: not keys, every=0.5)
    return found
