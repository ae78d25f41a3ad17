"""How many streams stopped and how many foreign records were met, for `./daybook status` of either stack."""

from __future__ import annotations

import asyncio

import asyncpg

SECONDS = 2.0
_STOPPED = """
SELECT count(DISTINCT (topic, key)) FROM parked
WHERE kind IN ('forked', 'unreadable') AND right(read_model, 9) <> '_previous'"""
_FOREIGN = "SELECT coalesce(sum(records), 0) FROM foreign_count"


def stream_lines(url: str, command: str) -> list[str]:
    """A line for each kind of which there are some; none where the database does not answer at once: `status`
    says so beside its process. `command` is `./daybook`, as it is typed for this stack."""
    try:
        stopped, foreign = asyncio.run(_ask(url))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return []
    lines = {"streams have stopped": stopped, "foreign records were skipped": foreign}
    return [f"{count} {what}: `{command} streams list`" for what, count in lines.items() if count]


async def _ask(url: str) -> tuple[int, int]:
    async with asyncio.timeout(SECONDS):
        connection = await asyncpg.connect(url, timeout=SECONDS)
        try:
            stopped, foreign = await connection.fetchval(_STOPPED), await connection.fetchval(_FOREIGN)
            return int(stopped), int(foreign)
        finally:
            connection.terminate()
