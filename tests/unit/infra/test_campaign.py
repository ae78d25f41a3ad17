"""A campaign of drills continues where it stopped, and holds the others when one fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from infra.cli import drill as drills
from infra.lab.drills.drill import DrillFailed
from infra.lab.drills.pair import Pair
from infra.lab.drills.report import DrillReport, Promise, append_run

KEPT, BROKEN = "planned", "failback"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "runs.csv"
    monkeypatch.setattr(drills, "_runs", lambda: file)
    return file


def run_of(name: str, seed: int, kept: bool) -> DrillReport:
    return DrillReport(
        name, seed, "2026-11-23T00:00:00Z", promises=[Promise("it works", "yes", "yes", kept=kept)]
    )


def test_what_was_kept_is_not_held_again(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_run(run_of(KEPT, 7, kept=True), table)
    append_run(run_of(BROKEN, 7, kept=False), table)
    append_run(run_of(BROKEN, 8, kept=True), table)
    held: list[tuple[str, int]] = []
    monkeypatch.setattr(drills, "_in_own_process", lambda *drill: held.append(drill))
    drills.hold_campaign(7, minutes=10_000)
    assert held == [(drill.name, 7) for drill in drills.DRILLS if drill.name != KEPT]


@pytest.mark.usefixtures("table")
def test_drills_in_containers_have_a_project_beside_the_shops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "shop")
    monkeypatch.setenv("DAYBOOK_STACK", "compose")
    monkeypatch.setenv("DAYBOOK_HOME", str(tmp_path / "shop-compose"))
    projects: list[str] = []

    def start(pair: Pair, _: int) -> None:
        projects.append(pair.environment["COMPOSE_PROJECT_NAME"])
        raise DrillFailed("there is no engine")

    monkeypatch.setattr(Pair, "start", start)
    monkeypatch.setattr(Pair, "run", lambda *_: "")
    with pytest.raises(typer.Exit):
        drills._run_on_sites(drills.DRILLS[0], 1, None, running=False)
    assert projects == [drills.DRILL_PROJECT]
    assert drills.DRILL_PROJECT.count("-drill") == 1


def test_each_drill_is_a_command_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second drill in one process connected to new sites with the certificates of the first, in vain."""
    monkeypatch.setenv("DAYBOOK_STACK", "compose")
    monkeypatch.setenv("DAYBOOK_HOME", "/shop-compose")
    typed: list[tuple[Any, ...]] = []

    def begin(command: tuple[str, ...], *, env: dict[str, str]) -> SimpleNamespace:
        typed.append((command[1:], env["DAYBOOK_HOME"], env["DAYBOOK_STACK"]))
        return SimpleNamespace(wait=lambda: 3)

    monkeypatch.setattr("infra.cli.drill.subprocess.Popen", begin)
    assert drills._in_own_process(KEPT, 7) == 3
    command = ("-m", "infra.cli", "--stack", "compose", "drill", KEPT, "--seed", "7")
    assert typed == [(command, "/shop", "embedded")]


@pytest.mark.usefixtures("table")
def test_the_others_are_held_when_one_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held: list[str] = []

    def run(name: str, _: int) -> int:
        held.append(name)
        return name == BROKEN

    monkeypatch.setattr(drills, "_in_own_process", run)
    with pytest.raises(typer.Exit) as ended:
        drills.hold_campaign(1, minutes=10_000)
    assert ended.value.exit_code == 1
    assert held == [drill.name for drill in drills.DRILLS]
    assert f"not every promise was kept by {BROKEN}: " in capsys.readouterr().err


@pytest.mark.usefixtures("table")
def test_what_would_take_longer_is_left_for_the_next_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held: list[str] = []
    monkeypatch.setattr(drills, "_in_own_process", lambda name, _: held.append(name))
    drills.hold_campaign(1, minutes=20)
    longer = [drill.name for drill in drills.DRILLS if drill.minutes >= 20]
    assert longer == ["routed", "clusters-failback"]
    assert held == [drill.name for drill in drills.DRILLS if drill.name not in longer]
    printed = " ".join(capsys.readouterr().err.split())
    assert "Not held for want of time: routed, clusters-failback. Run it again" in printed
