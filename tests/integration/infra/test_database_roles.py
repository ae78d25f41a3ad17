"""What each role of the shop's database may do: every cell of the two tables, with real statements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from infra.base.ports import HOST
from infra.base.settings import StackSettings
from infra.stack.database import open_shop_database
from infra.stack.embedded.postgres import PostgresPlace
from infra.stack.shop import USER, database_url, role_password
from services.projection.engine.database import create_tables
from services.projection.engine.rebuild import successor_of
from services.projection.engine.roles import ROLES, open_database
from services.projection.read_models import ORDERS, READ_MODELS
from tests.ports import free_ports
from tests.postgres_server import EmbeddedPostgres

# S, I, U, D, T: select, insert, update, delete, truncate. `orders_next` is made by a rebuild, after the rights.
TABLES = """
table                owner  projection  query  guard  auditor
position             SIUDT  SIUD        S      -      S
parked               SIUDT  SIUD        S      -      S
skipped              SIUDT  SIUD        S      -      S
judged               SIUDT  SIUD        S      -      S
foreign_count        SIUDT  SIUD        S      -      S
foreign_record       SIUDT  SIUD        S      -      S
migration            SIUDT  S           S      -      S
promotion            SIUDT  S           S      -      S
site                 SIUDT  S           S      SIU    S
orders.orders        SIUDT  SIUD        S      -      S
stock.stock          SIUDT  SIUD        S      -      S
orders_next.orders   SIUDT  SIUD        S      -      S
pg_authid            -      -           -      -      -
"""
TABLE_STATEMENTS = {
    "S": "SELECT 1 FROM {0} WHERE false",
    "I": "INSERT INTO {0} DEFAULT VALUES",
    "U": "UPDATE {0} SET {1} = NULL WHERE false",
    "D": "DELETE FROM {0} WHERE false",
    "T": "TRUNCATE {0}",
}
OTHERS = {
    "CREATE TABLE another ()": {"owner"},
    "CREATE TABLE orders.another ()": {"owner"},
    "CREATE SCHEMA another": {"owner"},
    "ALTER TABLE orders.orders ADD another int": {"owner"},
    "DROP TABLE orders.orders": {"owner"},
    "DROP SCHEMA orders CASCADE": {"owner"},
    "CREATE TEMPORARY TABLE another ()": {"owner"},
    "SET ROLE owner": {"owner"},
    f"SET ROLE {USER}": set[str](),
    "COPY migration TO PROGRAM 'true'": set(),
    "COPY orders.orders FROM PROGRAM 'true'": set(),
    "COPY migration TO '/tmp/another'": set(),
    "SELECT pg_read_file('PG_VERSION')": set(),
    "SELECT lo_from_bytea(0, 'another')": set(),
    "CREATE ROLE another": set(),
    "CREATE EXTENSION vector": set(),
}
# PostgreSQL refuses these in a transaction before it looks at rights; nobody has them.
FOR_NO_ROLE = ("CREATE DATABASE another", "ALTER SYSTEM SET log_statement = 'all'", "DROP DATABASE postgres")
PASSWORDS = {role: f"{role}-has-a-password-of-its-own" for role in ROLES}


def address(url: str, role: str, password: str, database: str = "") -> str:
    parts = urlsplit(url)
    path = f"/{database}" if database else parts.path
    return urlunsplit(parts._replace(netloc=f"{role}:{password}@{parts.hostname}:{parts.port}", path=path))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, timeout=30)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def opened(fresh_database: str) -> str:
    """A database as a start leaves it, and the tables of a rebuild that the owner began."""
    async with connected(fresh_database) as superuser:
        await open_database(superuser, PASSWORDS, READ_MODELS)
    async with connected(address(fresh_database, "owner", PASSWORDS["owner"])) as owner, owner.transaction():
        await create_tables(owner, successor_of(ORDERS))
    return fresh_database


async def allowed(connection: Any, statement: str) -> bool:
    """Whether the role has the right; what else is wrong with the statement does not matter. It leaves no trace."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return False
    except asyncpg.IntegrityConstraintViolationError:
        pass
    finally:
        await transaction.rollback()
    return True


async def columns(connection: Any) -> dict[str, str]:
    """A column of each table."""
    rows = await connection.fetch(
        "SELECT attrelid::regclass::text, attname FROM pg_attribute WHERE attnum = 1"
    )
    return {row[0].replace('"', "").removeprefix("public."): f'"{row[1]}"' for row in rows}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_has_its_rights_and_no_others(opened: str, role: str) -> None:
    header, *lines = TABLES.strip().splitlines()
    expected = {line.split()[0]: dict(zip(header.split(), line.split(), strict=True))[role] for line in lines}
    async with connected(address(opened, role, PASSWORDS[role])) as connection:
        # an attacker would do this first: the default protects from mistakes only
        await connection.execute("SET default_transaction_read_only = off")
        first = await columns(connection)
        rights = {
            table: "".join(
                [
                    letter
                    for letter, statement in TABLE_STATEMENTS.items()
                    if await allowed(connection, statement.format(table, first[table]))
                ]
            )
            or "-"
            for table in expected
        }
        assert rights == expected
        others = {statement: await allowed(connection, statement) for statement in OTHERS}
        assert others == {statement: role in roles for statement, roles in OTHERS.items()}
        for statement in FOR_NO_ROLE:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_the_tables_of_the_matrix_are_all_that_the_shop_shares(opened: str) -> None:
    async with connected(opened) as superuser:
        shared = await superuser.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert {row[0] for row in shared} <= {line.split()[0] for line in TABLES.strip().splitlines()}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_may_connect_to_no_other_database(opened: str, role: str) -> None:
    for other in ("postgres", "template1"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await asyncpg.connect(address(opened, role, PASSWORDS[role], other))


async def test_queries_are_read_only_and_end(opened: str) -> None:
    async with connected(address(opened, "query", PASSWORDS["query"])) as query:
        assert await query.fetchval("SHOW statement_timeout") == "15s"
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await query.execute("INSERT INTO position DEFAULT VALUES")


async def test_opening_again_changes_passwords_and_nothing_else(opened: str) -> None:
    rights = (
        "SELECT relname, relacl::text FROM pg_class WHERE relnamespace = 'orders'::regnamespace ORDER BY 1"
    )
    async with connected(opened) as superuser:
        before = await superuser.fetch(rights)
        new = {role: f"{password}-2" for role, password in PASSWORDS.items()}
        assert await open_database(superuser, new, READ_MODELS) == []
        assert await superuser.fetch(rights) == before
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(address(opened, "query", PASSWORDS["query"]))
    async with connected(address(opened, "query", new["query"])):
        pass


async def test_what_a_superuser_made_before_the_roles_existed_becomes_the_owners(fresh_database: str) -> None:
    async with connected(fresh_database) as superuser:
        await open_database(superuser, {}, READ_MODELS)
        await superuser.execute(
            "INSERT INTO position (read_model, topic, partition) VALUES ('orders', 't', 0)"
        )
        await open_database(superuser, PASSWORDS, READ_MODELS)
    async with connected(address(fresh_database, "owner", PASSWORDS["owner"])) as owner:
        assert await owner.fetchval("SELECT count(*) FROM position") == 1
        await owner.execute("ALTER SCHEMA orders RENAME TO orders_previous")
    async with connected(address(fresh_database, "projection", PASSWORDS["projection"])) as projection:
        await projection.execute("DELETE FROM orders_previous.orders")


async def test_a_password_that_is_not_one_is_refused(fresh_database: str) -> None:
    async with connected(fresh_database) as superuser:
        for wrong in (
            PASSWORDS | {"query": "short"},
            {"query": PASSWORDS["query"]},
            PASSWORDS | {"query": "'" * 24},
        ):
            with pytest.raises(ValueError, match="a password of at least 24"):
                await open_database(superuser, wrong, READ_MODELS)


async def test_over_tcp_only_the_auditor_may_come(tmp_path: Path) -> None:
    """On the embedded stack, whose server has no TLS: the others need the socket, whose folder is private."""
    settings = StackSettings(
        home=tmp_path / ("a-long-name-of-a-checkout" * 4), port_base=free_ports(1)[0] - 32
    )
    port = settings.port("postgres")
    server = EmbeddedPostgres(settings.home / "postgres", port)
    server.layout = PostgresPlace(server.layout.folder, port)
    server.start()
    try:
        await open_shop_database(settings)
        for role in (*ROLES, USER):
            async with connected(database_url(settings, role)) as connection:
                assert await connection.fetchval("SELECT current_user") == role
        assert HOST in database_url(settings)
        for role in {*ROLES, USER} - {"auditor"}:
            with pytest.raises(
                asyncpg.InvalidAuthorizationSpecificationError, match=r"no pg_hba\.conf entry"
            ):
                await asyncpg.connect(
                    f"postgresql://{role}:{role_password(settings, role)}@{HOST}:{port}/{USER}"
                )
        assert server.layout.socket.stat().st_mode & 0o777 == 0o700
    finally:
        server.kill()
