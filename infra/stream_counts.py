"""How many streams stopped and how many foreign records were met, for `./daybook status`."""

from __future__ import annotations

import asyncio

import asyncpg

SECONDS = 2.0
_STOPPED = "SELECT count(DISTINCT (topic, key)) FROM parked WHERE kind IN ('forked', 'unreadable')"
_FOREIGN = "SELECT coalesce(sum(records), 0) FROM foreign_count"


def stopped_and_foreign(url: str) -> tuple[int, int]:
    """Zeros where the database does not answer at once: `status` says so beside its process."""
    try:
        return asyncio.run(_ask(url))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return 0, 0


async def _ask(url: str) -> tuple[int, int]:
    async with asyncio.timeout(SECONDS):
        connection = await asyncpg.connect(url, timeout=SECONDS)
        try:
            stopped, foreign = await connection.fetchval(_STOPPED), await connection.fetchval(_FOREIGN)
            return int(stopped), int(foreign)
        finally:
            connection.terminate()
