"""`./daybook demo` starts a shop that does not run, and only such a one, on both platforms."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from infra.base.journal import Phase, StackJournal, StackState
from infra.base.settings import INSECURE, StackSettings
from infra.cli import demo, lifecycle
from infra.stack.compose import platform as adapter
from infra.stack.compose.engine import Container

RUNNING = Container("shop-broker-1", "broker", "running", "healthy", 0, ())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DAYBOOK_STACK", "DAYBOOK_SITE", lifecycle.ONE_SITE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAYBOOK_HOME", str(tmp_path))
    monkeypatch.setenv("DAYBOOK_PORT_BASE", "20000")
    return tmp_path


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    started: list[str] = []
    monkeypatch.setattr(demo, "up", lambda only: started.append(only))
    return started


def test_child_processes(home: Path, starts: list[str]) -> None:
    journal = StackJournal(home)
    journal.write(StackState(Phase.RUNNING, 1, 21_000))
    with journal.sole_supervisor():
        assert demo._opened().port_base == 21_000
    assert starts == []
    with pytest.raises(typer.Exit):
        demo._opened()
    assert starts == [""]


def test_containers_that_take_anyone(home: Path, starts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Started once more, they would be asked to be secured."""
    (home / INSECURE).touch()
    monkeypatch.setenv("DAYBOOK_STACK", "compose")
    existing = [RUNNING]
    monkeypatch.setattr(adapter, "containers", lambda _: existing)
    assert demo._opened() == StackSettings()
    assert starts == []
    existing.clear()
    assert demo._opened() == StackSettings()
    assert starts == [""]
