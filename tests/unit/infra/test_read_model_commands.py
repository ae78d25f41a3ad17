"""What ends a rebuild, or keeps parked keys from being listed, is one line with the next step."""

from contextlib import nullcontext
from typing import Any

import asyncpg
import pytest
import typer
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from infra.cli import parked, rebuild
from infra.cli.main import command as daybook
from services.projection.engine.read_model import SourceGap, TooManyParked
from services.projection.engine.settings import ProjectionSettings

STORES = ["--kafka", "somewhere", "--database-url", "somewhere"]
NO_TABLE = asyncpg.UndefinedTableError('relation "parked" does not exist')


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It responds."""
    monkeypatch.setattr(parked, "broker_at", str)


@pytest.mark.parametrize(
    ("error", "reason", "next_step"),
    [
        (
            TooManyParked("orders_next: 101 keys, at most 100; the last is o-1: no\nDETAIL"),
            "101 keys",
            "correct the read model's fold",
        ),
        (SourceGap("orders: at 2, the source jumped to 3 [x]"), "jumped to 3 [x]", "`./daybook audit`"),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), "_TRANSPORT", "`./daybook up`"),
        (NO_TABLE, "has the projection run yet?", "`./daybook status`"),
    ],
)
def test_a_rebuild_that_ends_says_why(
    error: Exception,
    reason: str,
    next_step: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def ends(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(rebuild, "replay_into", ends)
    monkeypatch.setattr(rebuild, "recorded", lambda *_: nullcontext())  # there is no broker to record it at
    with pytest.raises(typer.Exit) as left:
        rebuild.build(["orders"], ProjectionSettings())
    output = capsys.readouterr().err.strip()
    assert left.value.exit_code == 1
    assert output.startswith("daybook: ") and "\n" not in output
    assert reason in output and next_step in output


def test_before_the_projection_has_run_no_key_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_table(*_: object) -> None:
        raise NO_TABLE

    monkeypatch.setattr(parked, "parked_commands", lambda _: [])
    monkeypatch.setattr(parked, "query", no_table)
    monkeypatch.setattr(parked, "at_key", no_table)
    listed = CliRunner().invoke(daybook(), ["parked", "list", *STORES], env={"COLUMNS": "200"})
    assert listed.exit_code == 0
    assert "the projection has not run yet; `./daybook status` shows whether it does" in listed.stderr
    shown = CliRunner().invoke(daybook(), ["parked", "show", "orders:o-1", *STORES])
    assert shown.exit_code == 1
    assert shown.stderr.startswith("daybook: nothing is parked there: the projection has not run yet")


def test_a_database_that_does_not_respond_is_not_taken_for_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def late(_: str) -> None:
        raise TimeoutError

    monkeypatch.setattr(parked, "parked_commands", lambda _: [])
    monkeypatch.setattr(asyncpg, "connect", late)
    listed = CliRunner().invoke(daybook(), ["parked", "list", *STORES], env={"COLUMNS": "200"})
    assert listed.exit_code == 1
    assert listed.stderr.startswith("daybook: the database does not respond (no connection in time)")
