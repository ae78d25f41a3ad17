"""Commands about a stack that is down say so, and never reach for another checkout's."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from infra.base.settings import StackSettings
from infra.cli import inspect
from infra.cli.audit import NOT_MADE
from infra.cli.main import command as daybook
from infra.cli.rebuild import projection_settings

NOT_UP = "daybook: the stack is not running: `./daybook up` starts it\n"
STORES = ("DAYBOOK_KAFKA", "DAYBOOK_DATABASE_URL")


@pytest.fixture(autouse=True)
def down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*STORES, "DAYBOOK_STACK", "DAYBOOK_SITE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAYBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DAYBOOK_PORT_BASE", "36000")
    monkeypatch.setattr(inspect, "responds", lambda _: True)  # "somewhere"


@pytest.mark.parametrize(
    "command", [["status"], ["rebuild", "orders"], ["replay", "--into", "all"], ["parked", "list"]]
)
@pytest.mark.parametrize("named", [(), *((name,) for name in STORES)])
def test_half_an_address_is_none(
    command: list[str], named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in named:
        monkeypatch.setenv(name, "somewhere")
    done = CliRunner().invoke(daybook(), command)
    assert (done.exit_code, done.stderr) == (1, NOT_UP)


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        (["env"], 1),
        (["topics", "--check"], 1),
        (["topics", "repartition", "order", "--partitions", "3", "--yes"], 1),
        (["replay", "--group", "g", "--topic", "order.events", "--since", "1h", "--yes"], 1),
        (["load"], 1),
        (["notebook"], 1),
        (["audit"], NOT_MADE),
        (["analytics", "run"], NOT_MADE),
        (["analytics", "lake", "update"], NOT_MADE),
    ],
)
def test_no_other_stack_is_asked_instead(
    command: list[str], exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAYBOOK_PORT_BASE")  # by default another checkout's stack may listen there
    done = CliRunner().invoke(daybook(), command)
    assert (done.exit_code, done.stdout, done.stderr) == (exit_code, "", NOT_UP)


def test_stores_that_the_environment_names_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STORES:
        monkeypatch.setenv(name, f"{name} there")
    settings = projection_settings()
    assert (settings.kafka, settings.database_url) == tuple(f"{name} there" for name in STORES)


@pytest.mark.parametrize(
    "command", [["streams", "list"], ["parked", "list"], ["journal"], ["topics", "inputs"]]
)
def test_a_broker_that_is_named_and_silent_is_said_at_once(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `./daybook down` in a shell that has the addresses of `./daybook env`."""
    monkeypatch.setattr(inspect, "responds", lambda _: False)
    monkeypatch.setenv("DAYBOOK_KAFKA", "sasl_ssl://127.0.0.1:1?identity=/somewhere")
    monkeypatch.setenv("DAYBOOK_DATABASE_URL", "postgresql://somewhere")
    done = CliRunner().invoke(daybook(), command)
    assert (done.exit_code, done.stderr) == (
        1,
        "daybook: no broker responds at 127.0.0.1:1: `./daybook up` starts the stack\n",
    )


def test_a_broker_that_listens_and_does_not_respond_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a frozen one, with which the system still opens connections."""
    monkeypatch.setattr(inspect, "running_settings", StackSettings)
    monkeypatch.setattr(inspect, "members_seen", lambda _: ())
    with pytest.raises(typer.Exit):
        inspect.broker_at("")
    assert "no broker responds at 127.0.0.1:36092" in capsys.readouterr().err
