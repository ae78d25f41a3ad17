"""Commands that were interrupted, and sites that came back at a bad moment: another command continues."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contracts.kernel.records import HoldKind, Role, SiteHold, SiteRole, SiteSwitch, SwitchStep
from infra.base.errors import NotDone
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.dr import failover, guard, promotion, rebuild, report
from infra.dr.incident import Situation, SwitchHistory
from infra.dr.losses import Report, Verdict
from infra.dr.old_log import UnprovenPart
from infra.log.control import Address
from infra.stack.embedded.platform import EmbeddedPlatform
from infra.stack.shop import MIRROR
from infra.stack.site import Site
from services.kernel.log.control import Control
from services.kernel.log.transactions import OwnershipLost
from tests.unit.sites.test_incident import PAIR, after_loss, steps

UNKNOWN: Verdict = "unknown between these offsets"


def control(role: Role, epoch: int, held: HoldKind | None = None) -> Control:
    block = None if held is None else SiteHold(held, epoch, 1)
    return Control(SiteRole("any", role, epoch), block=block)


class FakePlatform:
    """Notes which processes it starts."""

    def __init__(self) -> None:
        self.started = list[str]()

    def start(self, _: Site, *names: str) -> None:
        self.started += names

    def stop(self, _: Site, *names: str) -> None:
        pass

    def has_log(self, _: Site) -> bool:
        return False

    @contextmanager
    def broker_alone(self, _: Site) -> Iterator[str]:
        yield "broker"


def test_a_step_after_an_earlier_loss_does_not_hide_a_switch_that_is_under_way() -> None:
    late = steps("unplanned", 2, "reconciled")
    under_way = steps("unplanned", 3, "stopped", source="away")
    history = SwitchHistory((*after_loss("reported", "rebuilt").steps, *under_way, *late))
    assert history.unfinished == under_way[0]


def test_the_report_is_that_of_the_last_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before it was made: the one of an earlier loss says nothing about this one."""
    monkeypatch.setattr(report, "read_report", lambda _, epoch: reported("listed") if epoch == 2 else None)
    again = steps("unplanned", 5, "stopped", "promoted")
    history = SwitchHistory((*after_loss("reported", "reconciled").steps, *again))
    assert report._kept(PAIR["away"], after_loss("reported")).epoch == 2
    with pytest.raises(NotDone, match=r"failover report. makes it"):
        report._kept(PAIR["away"], history)


def reported(verdict: Verdict) -> Report:
    unproven = (UnprovenPart("order.events", 0, 4, 9, "gone"),) if verdict == UNKNOWN else ()
    return Report("home", "away", "then", (), (), (), (), {}, "unplanned", 2, verdict, unproven)


@pytest.mark.parametrize(("made", "kept"), [(UNKNOWN, "listed"), ("listed", UNKNOWN)])
def test_a_report_never_replaces_one_that_proves_more(
    monkeypatch: pytest.MonkeyPatch, made: Verdict, kept: Verdict
) -> None:
    """The old log is gone while a rebuild archives it."""
    written, notes = list[Report](), list[str]()

    @contextmanager
    def gone(*_: object) -> Iterator[None]:
        yield None

    replaced: dict[str, Any] = {
        "_at_active": lambda _: (PAIR, PAIR["away"], after_loss("reported")),
        "readable": gone,
        "report_losses": lambda *_, **__: reported(made),
        "read_report": lambda *_: reported(kept),
        "_customers": lambda *_: {},
        "with_repeats": lambda _, made_now, __: made_now,
        "write_report": lambda _, __, made_now: written.append(made_now),
        "record_following": lambda *_: None,
    }
    for name, replacement in replaced.items():
        monkeypatch.setattr(report, name, replacement)
    assert report.make_report(StackSettings(), print, notes.append).verdict == "listed"
    assert [report_.verdict for report_ in written] == ([] if kept == "listed" else ["listed"])
    assert bool(notes) == (kept == "listed")


class Recorded:
    """What `abort` does to the sites."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, platform: FakePlatform, now: Situation) -> None:
        self.lifted, self.steps = list[str](), list[SwitchStep]()
        monkeypatch.setattr(failover, "situation", lambda *_: now)
        monkeypatch.setattr(failover, "platform_of", lambda _: platform)
        monkeypatch.setattr(failover, "lift_hold", self.lifted.append)
        monkeypatch.setattr(failover, "record_step", self._step)

    def _step(self, _: str, switch: SiteSwitch, step: SwitchStep) -> SiteSwitch:
        self.steps.append(step)
        return switch


@pytest.mark.parametrize("held", ["quiesced", None])
def test_an_abort_that_was_interrupted_is_repeated(
    monkeypatch: pytest.MonkeyPatch, held: HoldKind | None
) -> None:
    states: dict[str, Control | None] = {"home": control("active", 1, held), "away": control("passive", 1)}
    now = Situation(PAIR, states, SwitchHistory(steps("planned", 2, "begun")))
    recorded = Recorded(monkeypatch, FakePlatform(), now)
    assert failover.abort(StackSettings()) == "home accepts writes again"
    assert (len(recorded.lifted), recorded.steps) == (1, ["aborted"])


def test_a_takeover_is_not_aborted_when_the_old_site_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    states: dict[str, Control | None] = {"home": control("active", 1), "away": control("passive", 1)}
    now = Situation(PAIR, states, SwitchHistory(steps("unplanned", 2, "stopped")))
    recorded = Recorded(monkeypatch, FakePlatform(), now)
    with pytest.raises(NotDone, match="Run the failover again"):
        failover.abort(StackSettings())
    assert (recorded.lifted, recorded.steps) == ([], [])


def test_a_takeover_that_only_stopped_the_mirror_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    states: dict[str, Control | None] = {"home": control("active", 1), "away": control("passive", 1)}
    platform = FakePlatform()
    monkeypatch.setattr(StackJournal, "held", lambda _: {MIRROR})
    recorded = Recorded(monkeypatch, platform, Situation(PAIR, states, SwitchHistory()))
    assert failover.abort(StackSettings()) == "the mirror at away copies again"
    assert platform.started == [MIRROR]
    assert recorded.lifted == [PAIR["away"].bootstrap], (
        "its block announces an epoch, which unproves the other site"
    )


@pytest.mark.parametrize(("epoch", "step"), [(1, "begun"), (2, "stopped")])
def test_a_takeover_that_goes_on_stops_the_mirror_again_unless_it_was_promoted(
    monkeypatch: pytest.MonkeyPatch, epoch: int, step: SwitchStep
) -> None:
    """It may have been aborted, long ago, and the mirror started again: the ends of then are old."""
    role: Role = "active" if epoch == 2 else "passive"
    states = [None, control(role, epoch), None, control(role, epoch)]
    monkeypatch.setattr(failover, "both_sites", lambda _: PAIR)
    monkeypatch.setattr(failover, "controls_at", lambda *_: states)
    history = SwitchHistory(steps("unplanned", 2, "stopped"))
    monkeypatch.setattr(failover, "newest_history", lambda *_: history)
    assert failover.possible_takeover(StackSettings(), "away").switch.step == step


def test_a_destroyed_site_leaves_what_is_no_sites(tmp_path: Path) -> None:
    """The router runs on, and the table of drills is about both sites."""
    site = Site(StackSettings(home=tmp_path))
    for name in ("broker", "away", "router", "drills"):
        (tmp_path / name).mkdir()
    EmbeddedPlatform(site.settings).destroy(site)
    assert {entry.name for entry in tmp_path.iterdir()} == {"away", "router", "drills"}


@pytest.mark.parametrize("held", [(), (MIRROR,)])
def test_where_nothing_is_under_way_there_is_nothing_to_abort(
    monkeypatch: pytest.MonkeyPatch, held: tuple[str, ...]
) -> None:
    """After a loss the mirror of the lost site is held until that is rebuilt."""
    states: dict[str, Control | None] = {"home": control("passive", 1), "away": control("active", 2)}
    history = after_loss() if held else SwitchHistory()
    platform = FakePlatform()
    monkeypatch.setattr(StackJournal, "held", lambda _: set(held))
    Recorded(monkeypatch, platform, Situation(PAIR, states, history))
    with pytest.raises(NotDone, match="no switchover is under way"):
        failover.abort(StackSettings())
    assert platform.started == []


def test_a_rebuild_does_not_copy_behind_what_is_left_of_the_old_log(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = list[str]()
    monkeypatch.setattr(rebuild, "platform_of", lambda _: FakePlatform())
    monkeypatch.setattr(rebuild, "about_events", lambda _: 5)
    monkeypatch.setattr(rebuild, "prepare_empty", lambda bootstrap, *_: prepared.append(bootstrap))
    plan = rebuild.Rebuilding(PAIR["home"], PAIR["away"], control("active", 2), after_loss("reported"))
    with pytest.raises(NotDone, match="home is not empty: run this command again"):
        rebuild.rebuild_site(plan)
    assert prepared == []


def test_a_disk_that_was_archived_in_part_still_has_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next call would leave the rest, such as the rows of the old log, where they are."""
    stores = ("broker", "broker-1", "controller", "postgres")
    site, move, moved = Site(StackSettings(home=tmp_path)), shutil.move, list[Path]()
    monkeypatch.setattr(StackSettings, "nodes", lambda _, kind: [s for s in stores if s.startswith(kind)])

    def move_one(source: Path, target: Path) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.append(source)
        move(source, target)

    for name in ("kept", *stores):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(shutil, "move", move_one)
    platform = EmbeddedPlatform(site.settings)
    for _ in stores:
        assert platform.has_log(site)
        moved.clear()
        try:
            platform.lose_disks(site, tmp_path / "kept")
        except KeyboardInterrupt:
            continue
    assert not any((tmp_path / store).exists() for store in stores)


@pytest.mark.parametrize("lost", [False, True])
def test_an_active_site_without_its_log_is_not_proven(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    lifted = list[str]()
    let_read(monkeypatch, {"own": control("active", 1, "unproven"), "peer": control("passive", 1)})
    monkeypatch.setattr(guard, "lost_log", lambda *_: lost)
    monkeypatch.setattr(guard, "lift_hold", lifted.append)
    guard.SiteWatch(Address("home", "own"), Address("away", "peer"), 0).check()
    assert lifted == ([] if lost else ["own"])


def test_a_fence_that_failed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role was written before it, so that the next look at the other site's epoch follows nothing."""
    states, results = {"own": control("active", 1), "peer": control("active", 2)}, ["fails", "fails", "", ""]

    def write_role(bootstrap: str, role: SiteRole) -> None:
        states[bootstrap] = Control(role)

    def fence(_: str) -> None:
        if results.pop(0):
            raise OwnershipLost("the broker failed")

    let_read(monkeypatch, states)
    monkeypatch.setattr("infra.log.control.write_role", write_role)
    monkeypatch.setattr("infra.log.control.fence_slots", fence)
    monkeypatch.setattr(guard, "fence_slots", fence)
    watch = guard.SiteWatch(Address("home", "own"), Address("away", "peer"), 0)
    for _ in range(2):
        with pytest.raises(OwnershipLost):
            watch.check()
    for _ in range(2):
        watch.check()
    assert (states["own"].role.role, len(results)) == ("passive", 1), "once more, and not for ever"


@pytest.mark.parametrize("kind", [TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError])
def test_a_database_that_is_away_does_not_stop_a_promotion(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise kind("away")

    monkeypatch.setattr(asyncpg, "connect", away)
    monkeypatch.setattr(promotion, "database_url", lambda *_: "postgresql://nowhere")
    (begun,) = steps("planned", 2, "begun")
    assert "readers with tokens of lost writes will wait" in promotion._keep_ends(PAIR["away"], begun)


def let_read(monkeypatch: pytest.MonkeyPatch, states: dict[str, Control]) -> None:
    """A guard reads these, by address."""

    class Reader:
        def __init__(self, bootstrap: str) -> None:
            self._bootstrap = bootstrap

        def read(self, _: float) -> Control:
            return states[self._bootstrap]

    monkeypatch.setattr(guard, "ControlSource", Reader)
