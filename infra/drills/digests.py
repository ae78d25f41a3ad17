"""Whether the read models of both sites are equal, key by key: a digest of each row."""

from __future__ import annotations

import asyncio
import time

import asyncpg

from infra.sites.site import Site

TABLES = {
    "orders.orders": "order_id",
    "orders.content": "order_id",
    "order_history.entry": "order_id || '/' || version",
    "conversations.conversation": "order_id",
    "sales_daily.sales_daily": "day || '/' || country || '/' || currency",
    "stock.stock": "sku",
}
PATIENCE_SECONDS = 60.0


async def digests(url: str) -> dict[str, str]:
    """`table key` → digest of the row."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        found = {}
        for table, key in TABLES.items():
            for row in await connection.fetch(f"SELECT {key} AS key, md5(t::text) AS digest FROM {table} t"):
                found[f"{table} {row['key']}"] = row["digest"]
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
    until = time.monotonic() + seconds
    while True:
        keys, differing = asyncio.run(differences(one, other))
        if not differing or time.monotonic() > until:
            return keys, differing
        time.sleep(0.5)
