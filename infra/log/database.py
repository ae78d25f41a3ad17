"""One question to PostgreSQL, from a command or another process that keeps no connection."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

Result = TypeVar("Result")


def in_database(url: str, act: Callable[[asyncpg.Connection], Awaitable[Result]], seconds: float) -> Result:
    """What `act` returns on a connection of its own. Each step may take so long. Raises DATABASE_ERRORS."""

    async def connected() -> Result:
        connection = await asyncpg.connect(url, timeout=seconds, command_timeout=seconds)
        try:
            return await act(connection)
        finally:
            connection.terminate()  # all is read or committed

    return asyncio.run(connected())
