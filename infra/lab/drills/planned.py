"""A planned switchover under load: nothing is lost, and writes rest for some seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from infra.dr.comparison import compare
from infra.dr.switchover import Failover
from infra.lab.drills.acknowledged import longest_gap
from infra.lab.drills.digests import settled_differences
from infra.lab.drills.drill import Clients, Course, Drill, all_answered, whole
from infra.lab.drills.following import Following
from infra.lab.drills.judging import judge, not_logged
from infra.lab.drills.pair import Pair
from infra.lab.drills.repeats import check_repeats
from infra.lab.drills.report import DrillReport, step_line

WITHOUT_WRITES_SECONDS = 15.0
READ_GAP_SECONDS = 5.0
WARM = (5.0, 12.0)
AFTER_SECONDS = 8.0


@dataclass(frozen=True)
class Switched:
    """When the command was typed (seconds since 1970), and what it did."""

    asked: float
    done: Failover


def _switch(course: Course) -> Switched:
    active, passive, epoch = course.sides.active, course.sides.other, course.sides.epoch
    course.sleep(WARM)
    course.show(f"switchover to {passive.name}")
    asked = time.time()
    with Following(course.load, passive, epoch):
        said = course.pair.run("failover", "--planned", "--to", passive.name, "--json")
    time.sleep(AFTER_SECONDS)
    done = msgspec.json.decode(said, type=Failover)
    course.report.story += [
        f"{active.name} was active in epoch {epoch}; {len(course.load.told)} commands were answered in all.",
        f"`daybook failover --planned --to {passive.name}` was typed.",
        *map(step_line, done.steps),
    ]
    return Switched(asked, done)


def _pauses_are_short(course: Course, switched: Switched) -> None:
    report, reads = course.report, course.reads
    gap = longest_gap((each.at for each in course.load.told), switched.asked)[0]
    report.at_most("seconds without acknowledged writes", gap, WITHOUT_WRITES_SECONDS)
    report.at_most("longest time without reads at the passive site", reads.gap(), READ_GAP_SECONDS)
    report.figures["reads served"] = reads.served


def _nothing_is_lost(course: Course, switched: Switched) -> None:
    report, load, new = course.report, course.load, course.sides.other
    report.nothing("acknowledged writes lost", not_logged(new.bootstrap, load.told))
    course.show("repeats of what was acknowledged before")
    again = check_repeats(
        course.pair, report, load.told, load.sent, frozenset(), new.name, switched.done.epoch
    )
    course.show("coming to rest")
    course.pair.await_rest(new)
    judge(report, new.bootstrap, [*load.told, *again], database_url=new.database_url)


def sites_are_equal(course: Course, _: object) -> None:
    course.show("comparing both sites")
    course.pair.await_mirrored(course.sides.other, course.sides.active)
    check_equal(course.report, course.pair)


def check_equal(report: DrillReport, pair: Pair) -> None:
    """Both logs record by record, both sites' read models key by key; the mirror must be caught up."""
    active, passive, _ = pair.roles()
    logs = compare(active.bootstrap, passive.bootstrap)
    report.nothing(f"partitions that differ, of {logs.records:,} records mirrored", list(logs.different))
    keys, differing = settled_differences(active, passive)
    report.nothing(f"rows of read models that differ, of {keys:,}", differing)


PLANNED = Drill(
    "planned",
    "Switch over under load: nothing may be lost, and both sites must be equal afterwards.",
    rig=whole,
    clients=Clients("p"),
    faults=_switch,
    promises=(all_answered, _pauses_are_short, _nothing_is_lost, sites_are_equal),
)
