"""`daybook status` asks PostgreSQL and changes nothing in it: only a start creates what the database lacks."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from infra.base.journal import MemberState, Phase, StackJournal, StackState
from infra.base.settings import StackSettings
from infra.cli.main import command as daybook
from infra.stack.shop import DATABASE
from tests.ports import free_base
from tests.postgres_server import EmbeddedPostgres

CREATED_BY_A_START = """
SELECT schemaname FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
UNION SELECT rolname FROM pg_roles WHERE rolname = 'owner'"""


def query(url: str, statement: str) -> list[Any]:
    async def rows() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return [row[0] for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(rows())


def shows_ready(server: EmbeddedPostgres, settings: StackSettings, ready: bool) -> tuple[int, str]:
    """The exit code of `status`, and its output, where the supervisor says so of PostgreSQL."""
    journal = StackJournal(settings.home)
    members = (MemberState("postgres", server.child.pid, ready),)
    with journal.sole_supervisor():
        journal.write(StackState(Phase.RUNNING, server.child.pid, settings.port_base, members))
        done = CliRunner().invoke(daybook(), ["status"], env={"COLUMNS": "160"})
    return done.exit_code, done.stdout


def test_the_database_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = StackSettings(home=tmp_path / "home", port_base=free_base())
    for name in ("DAYBOOK_STACK", "DAYBOOK_SITE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAYBOOK_HOME", str(settings.home))
    monkeypatch.setenv("DAYBOOK_PORT_BASE", str(settings.port_base))
    server = EmbeddedPostgres(settings.home / "postgres", settings.port("postgres"))
    server.start()
    try:
        code, shown = shows_ready(server, settings, True)
        assert code == 0, shown
        assert re.search(r"postgres .* yes ", shown)
        assert query(server.url(), CREATED_BY_A_START) == []

        # the server responds, and the supervisor has not opened the database yet
        code, shown = shows_ready(server, settings, False)
        assert code == 1
        assert "postgres is not ready: not yet" in shown

        query(server.url("postgres"), f"DROP DATABASE {DATABASE}")
        code, shown = shows_ready(server, settings, True)
        assert code == 1
        assert "postgres is not ready: it does not respond" in shown
        assert query(server.url("postgres"), "SELECT datname FROM pg_database WHERE NOT datistemplate") == [
            "postgres"
        ]
    finally:
        server.kill()
