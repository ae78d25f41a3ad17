"""The office's own database, and the one user that Kafka Connect fills it as.

`python -m infra.stack.compose.office`, once per start, as the owner of the shop's database at DAYBOOK_DATABASE_URL.
The user may write the tables of the file DAYBOOK_OFFICE_TABLES, and connect to no other database.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from infra.base.settings import FromEnvironment

DATABASE, USER = "office", "office_writer"
SECONDS = 30.0


class OfficeSettings(FromEnvironment):
    database_url: str
    office_password: str
    office_tables: Path


def of_office(database_url: str) -> str:
    """The office's database on the same server, as the same user."""
    return urlunsplit(urlsplit(database_url)._replace(path=f"/{DATABASE}"))


async def open_office(database_url: str, password: str, tables: str) -> None:
    """Create what is missing, and set the user's password to `password`, which is hexadecimal.

    Raises asyncpg.PostgresError, OSError, TimeoutError.
    """
    async with _connected(database_url) as shop:
        await _roles_and_databases(shop, password)
    async with _connected(of_office(database_url)) as office:
        await office.execute(tables)
        # An upsert reads the row that it finds.
        await office.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {USER}")


async def _roles_and_databases(connection: asyncpg.Connection, password: str) -> None:
    if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", USER):
        await connection.execute(f"CREATE ROLE {USER} LOGIN")
    # A statement of this kind takes no parameters.
    await connection.execute(
        f"ALTER ROLE {USER} PASSWORD '{bytes.fromhex(password).hex()}' CONNECTION LIMIT 10"
    )
    if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
        await connection.execute(f"CREATE DATABASE {DATABASE}")
    # By default every user may connect to every database.
    for name in await connection.fetch("SELECT quote_ident(datname) FROM pg_database WHERE datallowconn"):
        await connection.execute(f"REVOKE ALL ON DATABASE {name[0]} FROM PUBLIC")
    await connection.execute(f"GRANT CONNECT ON DATABASE {DATABASE} TO {USER}")


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, timeout=SECONDS, command_timeout=SECONDS)
    try:
        yield connection
    finally:
        await connection.close(timeout=SECONDS)


def main() -> None:
    """Ends the process with exit code 1 and the reason where it fails."""
    settings = OfficeSettings()  # type: ignore[call-arg] # from the environment
    try:
        tables = settings.office_tables.read_text("utf-8")
        asyncio.run(open_office(settings.database_url, settings.office_password, tables))
    except (asyncpg.PostgresError, OSError) as reason:
        sys.exit(f"office: {reason}")
    print(f"database {DATABASE} is open to {USER}")


if __name__ == "__main__":
    main()
