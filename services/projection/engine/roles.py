"""The roles of the shop's database. No process of the shop is a superuser.

owner       creates and changes tables: migrations, rebuilds, an operator's decisions; runs no process
projection  writes the rows of read models and their positions
query       reads them, in read-only transactions with a time limit
guard       writes the row of its site
auditor     reads everything: audits, analytics, people
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from services.projection.engine.database import migrate, migration_lock
from services.projection.engine.read_model import Connection, ReadModel

OWNER, PROJECTION, QUERY, GUARD, AUDITOR = "owner", "projection", "query", "guard", "auditor"
# A number of connections keeps one kind of process from taking all of the server's.
ROLES: Mapping[str, str] = {
    OWNER: "",
    PROJECTION: "CONNECTION LIMIT 80",
    QUERY: "CONNECTION LIMIT 90",
    GUARD: "CONNECTION LIMIT 5",
    AUDITOR: "CONNECTION LIMIT 20",
}
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{24,}")
_ROLES = """
ALTER ROLE query SET default_transaction_read_only = on;
ALTER ROLE query SET statement_timeout = '15s';
ALTER ROLE auditor SET default_transaction_read_only = on;
-- a default right of every role: large objects would fill the disk
REVOKE EXECUTE ON FUNCTION lo_create(oid), lo_creat(int), lo_from_bytea(oid, bytea) FROM PUBLIC"""
# By default every role may connect to every database, and create temporary tables there.
_DATABASES = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT datname FROM pg_database WHERE datallowconn LOOP
        EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', name);
    END LOOP;
    EXECUTE format('ALTER DATABASE %I OWNER TO owner', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO projection, query, guard, auditor', current_database());
END $$"""
# What a superuser made before these roles existed becomes the owner's.
_ADOPT = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' AND nspowner <> 'owner'::regrole
    LOOP EXECUTE format('ALTER SCHEMA %I OWNER TO owner', name); END LOOP;
    FOR name IN SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspowner = 'owner'::regrole AND c.relkind IN ('r', 'p', 'v', 'm') AND c.relowner <> 'owner'::regrole
    LOOP EXECUTE format('ALTER TABLE %s OWNER TO owner', name); END LOOP;
END $$"""
# The defaults are for the tables of rebuilds, the loop for what exists.
_RIGHTS = """
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO projection, query, auditor;
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO projection;
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO query, auditor;
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspowner = 'owner'::regrole LOOP
        EXECUTE format('REVOKE ALL ON SCHEMA %I FROM PUBLIC', name);
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO projection, query, auditor', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO projection', name);
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO query, auditor', name);
    END LOOP;
END $$;
REVOKE INSERT, UPDATE, DELETE ON migration, promotion, site FROM projection;
GRANT USAGE ON SCHEMA public TO guard;
GRANT SELECT, INSERT, UPDATE ON site TO guard"""


async def open_database(
    connection: Connection, passwords: Mapping[str, str], models: Iterable[ReadModel[Any]]
) -> list[int]:
    """Creates what is missing: roles, tables, rights; returns the numbers of the applied migrations.

    The connection is a superuser's. `passwords` has one for each of ROLES, of at least 24 letters and digits; they
    become the roles'. Without any, only the tables are created, by the connection's own role. Raises ValueError.
    """
    if not passwords:
        return await migrate(connection, models)
    if passwords.keys() != ROLES.keys() or not all(map(_PASSWORD.fullmatch, passwords.values())):
        raise ValueError(f"a password of at least 24 letters and digits for each of {', '.join(ROLES)}")
    async with migration_lock(connection):
        for role, limit in ROLES.items():
            await _create_role(connection, role, passwords[role], limit)
        await connection.execute(_ROLES)
        await connection.execute(_DATABASES)
        await connection.execute(_ADOPT)
        await connection.execute("SET LOCAL ROLE owner")
        applied = await migrate(connection, models)
        await connection.execute(_RIGHTS)
        await connection.execute("RESET ROLE")
    return applied


async def _create_role(connection: Connection, role: str, password: str, limit: str) -> None:
    if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
        await connection.execute(f"CREATE ROLE {role}")
    # A statement of this kind takes no parameters.
    await connection.execute(
        f"ALTER ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS {limit} "
        f"PASSWORD '{password}'"
    )
