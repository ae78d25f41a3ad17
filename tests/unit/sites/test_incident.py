"""What the recorded steps of switches mean: what is under way, which site was lost, and what comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.kernel.records import Role, SiteRole, SiteSwitch, SwitchKind, SwitchStep
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.dr import failover
from infra.dr.incident import Incident, Situation, SwitchHistory, believed, require_no_loss
from infra.stack.site import Site
from services.kernel.log.control import Control

PAIR = {"home": Site(StackSettings()), "away": Site(StackSettings(site="away"))}


def steps(kind: SwitchKind, epoch: int, *names: SwitchStep, source: str = "home") -> tuple[SiteSwitch, ...]:
    target = "away" if source == "home" else "home"
    return tuple(SiteSwitch(epoch, kind, source, target, name, (), 1) for name in names)


def after_loss(*names: SwitchStep) -> SwitchHistory:
    return SwitchHistory(steps("unplanned", 2, "stopped", "promoted", *names))


def incident(history: SwitchHistory) -> Incident:
    assert history.incident is not None
    return history.incident


def test_a_shop_that_never_switched_has_nothing_under_way() -> None:
    assert (SwitchHistory().unfinished, SwitchHistory().incident) == (None, None)


@pytest.mark.parametrize("step", ["begun", "stopped"])
def test_a_switch_is_under_way_until_its_target_writes(step: SwitchStep) -> None:
    (last,) = steps("planned", 2, step)
    assert SwitchHistory((last,)).unfinished == last


def test_an_aborted_switch_may_be_begun_again_in_the_same_epoch() -> None:
    history = SwitchHistory(steps("planned", 2, "begun", "aborted"))
    assert history.unfinished is None
    assert SwitchHistory((*history.steps, *steps("planned", 2, "begun"))).unfinished is not None


def test_a_planned_switch_loses_no_site() -> None:
    assert SwitchHistory(steps("planned", 2, "begun", "stopped", "promoted")).incident is None


def test_a_lost_site_is_no_candidate_until_it_is_rebuilt() -> None:
    require_no_loss(after_loss("reported"), "away")
    with pytest.raises(NotDone, match=r"home was replaced by away in epoch 2 .* site rebuild home"):
        require_no_loss(after_loss("reported"), "home")
    require_no_loss(after_loss("reported", "rebuilt"), "home")


@pytest.mark.parametrize(
    ("done", "following"),
    [
        ((), "failover report"),
        (("reported",), "failover reconcile"),
        (("reported", "reconciled"), "site rebuild home"),
        (("reported", "rebuilt"), "failover --planned"),
    ],
)
def test_it_says_what_comes_next(done: tuple[SwitchStep, ...], following: str) -> None:
    assert f"`./daybook {following}`" in incident(after_loss(*done)).next_step


def test_an_incident_ends_when_the_lost_site_is_active_again() -> None:
    returned = after_loss("reported", "rebuilt", "returned")
    assert returned.incident is None


def test_a_switch_back_does_not_hide_what_is_not_reconciled() -> None:
    """The steps of an incident are those of its epoch, whatever was recorded between them."""
    history = SwitchHistory((*after_loss("reported").steps, *steps("planned", 3, "begun", source="away")))
    assert incident(history).done == {"reported"}


def control(role: Role, epoch: int) -> Control:
    return Control(SiteRole("any", role, epoch))


def test_the_active_site_is_believed() -> None:
    """A lost site that returns knows nothing of its loss, or of a switchover that never came to be."""
    begun = SwitchHistory(steps("planned", 2, "begun"))
    away = after_loss("reported")
    both = {"home": begun, "away": away}
    assert believed({"home": control("active", 1), "away": control("active", 2)}, both) == away
    assert believed({"home": control("passive", 2), "away": control("active", 2)}, both) == away
    assert believed({"away": control("active", 2)}, {}) == SwitchHistory()


def test_of_two_passive_sites_the_one_that_knows_more_is_believed() -> None:
    source = SwitchHistory(steps("planned", 2, "begun"))
    target = SwitchHistory(steps("planned", 2, "begun", "stopped"))
    states = {"home": control("passive", 1), "away": control("passive", 1)}
    assert believed(states, {"home": source, "away": target}) == target
    assert believed(states, {"home": source, "away": SwitchHistory()}) == source


def test_the_view_says_what_is_under_way() -> None:
    assert SwitchHistory().standing == ""
    assert (
        "planned failover to away is not finished" in SwitchHistory(steps("planned", 2, "stopped")).standing
    )
    assert after_loss().standing.startswith(
        "away replaced home in epoch 2. Next: `./daybook failover report`"
    )
    assert after_loss("reported", "rebuilt", "returned").standing == ""


def test_a_planned_failover_says_which_site_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that one is silent, so that no site is passive."""
    settings = StackSettings()
    now = Situation(PAIR, {"home": None, "away": control("active", 2)}, after_loss("reported"))
    monkeypatch.setattr(failover, "situation", lambda *_: now)
    with pytest.raises(NotDone, match=r"home was replaced by away in epoch 2 .* site rebuild home"):
        failover.switch_over(settings)


def test_a_switch_whose_target_is_lost_is_taken_over_by_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target may have written in the switch's epoch: the next one is later, and nobody has to name a site."""
    silent, demoted = None, control("passive", 2)
    monkeypatch.setattr(failover, "both_sites", lambda _: PAIR)
    monkeypatch.setattr(failover, "controls_at", lambda *_: [silent, demoted, silent, demoted])
    names: list[SwitchStep] = ["begun", "stopped"]
    for step in names:
        under_way = SwitchHistory(steps("planned", 3, step, source="away"))
        monkeypatch.setattr(failover, "newest_history", lambda *_, history=under_way: history)
        switch = failover.possible_takeover(StackSettings()).switch
        assert (switch.kind, switch.source, switch.target, switch.epoch) == ("unplanned", "home", "away", 4)


FOLLOWING = st.lists(st.sampled_from(["reported", "reconciled", "rebuilt"]), max_size=6)


@given(FOLLOWING)
def test_recording_a_step_twice_changes_nothing(names: list[SwitchStep]) -> None:
    once, twice = after_loss(*names), after_loss(*names, *names)
    assert incident(once).done == incident(twice).done
    assert incident(once).next_step == incident(twice).next_step
