"""The step between PostgreSQL and the shop's processes: roles, tables and rights, as the server's superuser."""

import asyncio
import sys

import asyncpg

from infra.base.settings import StackSettings
from infra.stack.shop import USER, database_url, role_password
from services.projection.engine.read_model import DATABASE_ERRORS
from services.projection.engine.roles import ROLES, open_database
from services.projection.read_models import READ_MODELS

CONNECT_SECONDS, STATEMENT_SECONDS = 5.0, 60.0


async def open_shop_database(settings: StackSettings) -> None:
    """Create what the stack's database lacks. Raises asyncpg's errors, OSError, TimeoutError."""
    url, passwords = database_url(settings, USER), {role: role_password(settings, role) for role in ROLES}
    connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS)
    try:
        await open_database(connection, passwords, READ_MODELS)
    finally:
        await connection.close(timeout=CONNECT_SECONDS)


def database_open(settings: StackSettings) -> bool:
    """The same, after each start of the server, which may have lost its disk. Returns False where it failed: the caller
    repeats it."""
    try:
        asyncio.run(open_shop_database(settings))
    except DATABASE_ERRORS as error:
        print(f"postgres: its database could not be opened: {error!r}", file=sys.stderr)
        return False
    return True
