"""A command that destroys something needs the site's name."""

from __future__ import annotations

import io
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from contracts.kernel.records import SiteSwitch
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.cli import failover, losses, site
from infra.cli.failover import confirm_site
from infra.dr.failover import Takeover

CONSEQUENCES = "home was last heard 3 s ago.\nIt is stopped, and its log is moved away."


def test_the_name_given_beforehand_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert not confirm_site("home", CONSEQUENCES, "home")
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
        assert confirm_site("home", CONSEQUENCES, "")
        return
    with pytest.raises(typer.Exit):
        confirm_site("home", CONSEQUENCES, "")


def alone(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """No other command runs, and the operator answers after a while."""
    monkeypatch.setattr(module, "client_settings", StackSettings)
    monkeypatch.setattr(module, "only_command", lambda *_: nullcontext())
    monkeypatch.setattr(module, "confirm_site", lambda *_: True, raising=False)


def test_a_takeover_that_became_another_one_while_it_asked_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = SimpleNamespace(name="away")
    plans = [
        Takeover(SiteSwitch(epoch, "unplanned", "home", "away", "begun", (), 0), away, away)  # type: ignore[arg-type]
        for epoch in (3, 2)
    ]
    alone(monkeypatch, failover)
    monkeypatch.setattr(failover, "possible_takeover", lambda *_: plans.pop())
    monkeypatch.setattr(failover, "_what_is_lost", lambda _: "")
    monkeypatch.setattr(failover, "take_over", lambda *_: pytest.fail("it took over"))
    done = CliRunner().invoke(failover.app, ["--unplanned"])
    assert done.exit_code == 1 and "the sites have changed meanwhile" in done.stderr


def test_a_site_that_is_the_only_one_after_the_question_is_not_rebuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def rebuildable(*_: object) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise NotDone("home does not accept writes")
        return SimpleNamespace(consequences="")

    alone(monkeypatch, site)
    nothing = SimpleNamespace(history=SimpleNamespace(incident=None))
    monkeypatch.setattr(site, "situation", lambda *_: nothing)
    monkeypatch.setattr(site, "rebuildable", rebuildable)
    monkeypatch.setattr(site, "rebuild_site", lambda *_: pytest.fail("it was rebuilt"))
    done = CliRunner().invoke(site.app, ["site", "rebuild", "away"])
    assert done.exit_code == 1 and "home does not accept writes" in done.stderr


def test_a_lost_command_is_not_both_sent_again_and_written_off(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SimpleNamespace(state="open", loss=SimpleNamespace(command_id="c-17"))
    alone(monkeypatch, losses)
    monkeypatch.setattr(losses, "kept_report", lambda _: (SimpleNamespace(bootstrap=""), None))
    monkeypatch.setattr(losses, "standings", lambda *_: [entry])
    done = CliRunner().invoke(losses.app, ["reconcile", "--reissue", "c-17", "--write-off", "c-17"])
    assert done.exit_code == 1 and "c-17: either send it again or write it off" in done.stderr
