"""New databases in the rig's server, and digests of a read model's tables."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import asyncpg

from services.projection.engine.read_model import ReadModel
from tests.bench.harness import Unmeasurable
from tests.waiting import wait_until_async

POLL_SECONDS = 0.01
PATIENCE_SECONDS = 120.0

_numbers = itertools.count()


def fresh_database(server_url: str) -> str:
    """The URL of a new, empty database."""
    name = f"bench_{next(_numbers)}"

    async def create() -> None:
        connection = await asyncpg.connect(server_url)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()

    asyncio.run(create())
    return f"{server_url.rpartition('/')[0]}/{name}"


def digest(connection_url: str, model: ReadModel[Any]) -> Mapping[str, str]:
    """For each table of a read model, one hash over all its rows, in order."""

    async def read() -> Mapping[str, str]:
        connection = await asyncpg.connect(connection_url)
        try:
            names = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", model.name
            )
            sql = "SELECT md5(coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '')) FROM {} t"
            return {name: await connection.fetchval(sql.format(f"{model.name}.{name}")) for (name,) in names}
        finally:
            await connection.close()

    return asyncio.run(read())


def drain_seconds(
    connection_url: str, ends: Mapping[tuple[str, int], int], models: int
) -> tuple[float, float]:
    """Watch `models` read models go through the log to `ends`: (seconds, share of the offsets) between the
    first commit that is seen and the last. Whoever projects is watched from outside, all in the same way.

    `ends` are positions after the last records. Raises Unmeasurable where they are not reached in time.
    """

    async def watch() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        connection = await asyncpg.connect(connection_url)
        total, first = models * sum(ends.values()), (0.0, 0)

        async def applied() -> int:
            nonlocal first
            at = await _applied(connection, ends)
            if at and not first[1]:
                first = (loop.time(), at)
            return at

        try:
            await wait_until_async(
                applied,
                f"the positions reach {dict(ends)}",
                PATIENCE_SECONDS,
                enough=lambda at: at >= total,
                every=POLL_SECONDS,
                error=Unmeasurable,
            )
        finally:
            await connection.close()
        return loop.time() - first[0], (total - first[1]) / total

    return asyncio.run(watch())


async def _applied(connection: Any, ends: Mapping[tuple[str, int], int]) -> int:
    try:
        rows = await connection.fetch("SELECT topic, partition, next_offset FROM position")
    except asyncpg.UndefinedTableError:
        return 0
    return sum(row["next_offset"] for row in rows if (row["topic"], row["partition"]) in ends)
