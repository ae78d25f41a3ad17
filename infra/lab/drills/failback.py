"""Going back after a loss, under load: the old site is rebuilt, and nothing is lost or copied twice."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from infra.dr.failback import Failback
from infra.dr.plan import controls
from infra.lab.drills.acknowledged import longest_gap
from infra.lab.drills.damage import Kind
from infra.lab.drills.drill import Clients, Course, Drill, Run, Sides, all_answered
from infra.lab.drills.following import Following
from infra.lab.drills.judging import judge, not_logged
from infra.lab.drills.pair import Pair
from infra.lab.drills.planned import WITHOUT_WRITES_SECONDS, sites_are_equal
from infra.lab.drills.report import DrillReport, step_line, write
from infra.lab.drills.unplanned import unplanned
from infra.stack.shop import MIRROR
from infra.stack.site import Site

WARM_SECONDS = 3.0
AFTER_SECONDS = 8.0


def _lost(run: Run, report: DrillReport) -> Sides:
    """A site that is lost, and the other active; where both are well, one is lost first."""
    if not _one_lost(run.pair):
        folder = run.folder / "loss"
        before = unplanned(Kind.DEAD).hold(run.pair, run.seed, folder, run.show)
        write(before, folder)
        held = "all held" if before.passed else "NOT all held"
        report.story.append(f"First a site was lost: {held} in {folder}.")
    active, epoch = _active(run.pair)
    return Sides(active, run.pair.other(active), epoch)


def _go_back(course: Course) -> None:
    active, old, epoch = course.sides.active, course.sides.other, course.sides.epoch
    time.sleep(WARM_SECONDS + course.chance.uniform(0, 3))
    course.show(f"failback to {old.name}")
    with Following(course.load, old, epoch):
        said = course.pair.run("failback", "--json")
    time.sleep(AFTER_SECONDS)
    done = msgspec.json.decode(said, type=Failback, dec_hook=lambda _, text: Path(text))
    course.report.story += [
        f"{active.name} was active in epoch {epoch}; {len(course.load.told)} commands were answered in all.",
        "`daybook failback` was typed.",
        *map(step_line, (*done.steps, *done.switchover.steps)),
    ]


def _pauses_are_short(course: Course, _: None) -> None:
    report, told = course.report, course.load.told
    gap = longest_gap((each.at for each in told), told[0].at)[0]
    report.at_most("seconds without acknowledged writes", gap, WITHOUT_WRITES_SECONDS)
    reads = course.reads.gap()
    report.at_most("longest time without reads at the site that stayed", reads, WITHOUT_WRITES_SECONDS)


def _nothing_is_lost(course: Course, _: None) -> None:
    report, told, old = course.report, course.load.told, course.sides.other
    report.nothing("acknowledged writes lost", not_logged(old.bootstrap, told))
    course.show("coming to rest")
    course.pair.await_rest(old)
    judge(report, old.bootstrap, told, database_url=old.database_url)


def _active(pair: Pair) -> tuple[Site, int]:
    """The active site of the newest epoch; the other may be down."""
    said = controls(pair.sites)
    epochs = {name: each.role.epoch for name, each in said.items() if each and each.role.role == "active"}
    name = max(epochs, key=lambda name: epochs[name])
    return pair.sites[name], epochs[name]


def _one_lost(pair: Pair) -> bool:
    """Whether an unplanned failover has left a site behind: no mirror follows the active one."""
    active, _ = _active(pair)
    return MIRROR in pair.platform.held(pair.other(active))


FAILBACK = Drill(
    "failback",
    "Lose a site, rebuild it and fail back to it under load: nothing is lost, nothing is copied twice.",
    rig=_lost,
    clients=Clients("b"),
    faults=_go_back,
    promises=(all_answered, _pauses_are_short, _nothing_is_lost, sites_are_equal),
    reads_at_active=True,
)
