"""A command that destroys something needs the site's name."""

from __future__ import annotations

import io

import pytest
import typer

from infra.cli.failover import confirm_site

CONSEQUENCES = "home was last heard 3 s ago.\nIt is stopped, and its log is moved away."


def test_the_name_given_beforehand_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    confirm_site("home", CONSEQUENCES, "home")
    assert CONSEQUENCES in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["", "away", "yes"])
def test_without_the_name_nothing_happens(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        confirm_site("home", CONSEQUENCES, typed)
    assert ended.value.exit_code == 1
    assert "nothing was changed: add `--confirm home` to agree" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "agreed"), [("home\n", True), ("home please\n", False)])
def test_at_a_terminal_it_asks(typed: str, agreed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(typed))
    if agreed:
        confirm_site("home", CONSEQUENCES, "")
        return
    with pytest.raises(typer.Exit):
        confirm_site("home", CONSEQUENCES, "")
