"""What an operator can do to a failover: kill the command, give it up, force it, decide loss by loss."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from infra.dr.reconcile import standings
from infra.lab.drills.drill import Clients, Course, Drill, DrillFailed, all_have_outcomes
from infra.lab.drills.judgement import check_losses, judge
from infra.lab.drills.pair import Following, Pair, Sides, both_sites
from infra.lab.drills.switchover import nothing_is_lost, report_names_nothing, sites_are_equal
from infra.log.control import READ_SECONDS
from infra.stack.site import Site
from services.kernel.log.control import Control, ControlSource
from tests.integration.sites.rig import eventually

SEEN_SECONDS = 60.0


def _interrupt(course: Course[Sides]) -> None:
    """The command is killed while requests are held, and given up; then killed past the point of no return."""
    pair, active, passive, load = course.rig.pair, course.rig.active, course.rig.other, course.load
    time.sleep(3)
    course.show("killed while requests are held")
    _kill_when(pair, active, lambda control: control.held == "quiesced")
    pair.run("failover", "--abort")
    before = len(load.responses)
    eventually(lambda: len(load.responses) > before + 20, SEEN_SECONDS)
    course.show("killed when the old site has stood down")
    _kill_when(pair, active, lambda control: control.role.role == "passive")
    with pytest.raises(DrillFailed, match="can no longer be aborted"):
        pair.run("failover", "--abort")
    with Following(load, passive, course.rig.epoch):
        pair.run("failover", "--planned")
    time.sleep(5)


def _force(course: Course[Sides]) -> None:
    pair, active, passive = course.rig.pair, course.rig.active, course.rig.other
    time.sleep(3)
    with pytest.raises(DrillFailed, match="Use --force to continue anyway"):
        pair.run("failover", "--unplanned")
    course.show(f"forced to {passive.name}")
    pair.run("failover", "--unplanned", "--force", "--confirm", passive.name)
    pair.await_demoted(active, course.rig.epoch + 1)
    course.load.switch(passive.name)
    time.sleep(3)


def _each_loss_is_decided_at_the_prompt(course: Course[Sides], _: None) -> None:
    report, pair, passive, load = course.report, course.rig.pair, course.rig.other, course.load
    lost = pair.losses(course.run.folder / "lost.json")
    check_losses(report, passive.bootstrap, load.responses, course.rig.epoch + 1, lost, load.sent)
    count = sum(entry.state == "open" for entry in standings(passive.bootstrap, lost))
    report.figures["decided at the prompt"] = count
    pair.run("failover", "reconcile", "--interactive", typed="off\n" + "again\n" * (count - 1))
    decided = [entry.state for entry in standings(passive.bootstrap, lost)]
    report.none("still open", [state for state in decided if state == "open"])
    if count:
        assert decided.count("written off") == 1
    pair.await_rest(passive)
    judge(report, passive.bootstrap, load.responses, lost, passive.database_url)


def _kill_when(pair: Pair, site: Site, true: Callable[[Control], bool]) -> None:
    """Begin a planned failover and kill -9 it at the moment that `site.control` of `site` says so."""
    command, source = pair.begin("failover", "--planned"), ControlSource(site.bootstrap)
    try:
        until = time.monotonic() + SEEN_SECONDS
        while not true(source.read(READ_SECONDS)):
            if command.poll() is not None or time.monotonic() > until:
                raise DrillFailed(f"the command was over before: {command.returncode}")
    finally:
        command.kill()
        command.wait()
        source.close()


INTERRUPTED = Drill(
    "interrupted",
    "The command of a planned failover is killed, given up, killed again, and completed.",
    rig=both_sites,
    clients=Clients("i"),
    faults=_interrupt,
    promises=(all_have_outcomes, nothing_is_lost, report_names_nothing, sites_are_equal),
)
FORCED = Drill(
    "forced",
    "An unplanned failover is forced though the active site works; each loss is decided at the prompt.",
    rig=both_sites,
    clients=Clients("f"),
    faults=_force,
    promises=(all_have_outcomes, _each_loss_is_decided_at_the_prompt),
)
