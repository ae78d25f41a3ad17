"""A site whose disks are gone: the other continues, says what it cannot know, and copies itself to an empty machine."""

import time
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from infra.dr.failover import Failover
from infra.dr.losses import Verdict
from infra.dr.rebuild import EVENTS_PER_SECOND, Rebuilt
from infra.lab.drills.drill import Clients, Course, Drill, all_have_outcomes
from infra.lab.drills.judgement import check_equal, check_nothing_lost, check_repeats, judge, not_logged
from infra.lab.drills.pair import Kind, Sides, both_sites, damage
from infra.lab.drills.report import RPO, RTO, step_line
from infra.lab.drills.takeover import LOST_SECONDS, NOTICED, WARM
from infra.lab.load.clients import CommandResponse

AFTER_SECONDS = 5.0
UNKNOWN: Verdict = "unknown between these offsets"
REBUILD_SECONDS = 180.0


@dataclass(frozen=True)
class Destroyed:
    """The failover and the rebuild. `at`: when the site was lost; `gone`: acknowledgements that only its disk had."""

    at: float
    done: Failover
    rebuilt: Rebuilt
    before: list[CommandResponse]
    gone: Collection[str]


def _destroy(course: Course[Sides]) -> Destroyed:
    pair, lost, survivor = course.rig.pair, course.rig.active, course.rig.other
    check_nothing_lost(course.report, pair, course.run.folder)
    course.sleep(WARM)
    course.show(f"{lost.name}: dead, and its disks with it")
    damaged = damage(pair, lost, Kind.DEAD, course.random)
    pair.platform.destroy(lost)
    course.sleep(NOTICED)
    course.show(f"failover to {survivor.name}")
    course.load.switch(survivor.name)
    before = list(course.load.responses)
    done = pair.fail_over(survivor)
    gone = not_logged(survivor.bootstrap, before)
    time.sleep(AFTER_SECONDS)
    verdict = pair.losses(course.run.folder / "unknown.json").verdict
    course.report.promise(
        "what `failover report` says without the disk", UNKNOWN, verdict, verdict == UNKNOWN
    )
    course.show(f"rebuilding {lost.name} while writes go on")
    output = pair.run("site", "rebuild", lost.name, "--confirm", lost.name, "--json")
    rebuilt = msgspec.json.decode(output, type=Rebuilt)
    course.report.story += map(step_line, (*done.steps, *rebuilt.steps))
    return Destroyed(damaged.at, done, rebuilt, before, gone)


def _little_is_lost(course: Course[Sides], seen: Destroyed) -> None:
    lost = [response for response in seen.before if response.command_id in set(seen.gone)]
    window = max((seen.at - response.at for response in lost), default=0.0)
    course.report.figures["acknowledged writes lost"] = len(lost)
    course.report.at_most(RPO, max(0.0, window), LOST_SECONDS)
    course.report.figures[RTO] = course.write_gap(seen.at)


def _keys_outlive_the_disk(course: Course[Sides], seen: Destroyed) -> None:
    """Repeats of what crossed get the same responses: the key of the fingerprints was not lost either."""
    course.show("repeats of what was acknowledged before")
    kept = [response for response in seen.before if response.command_id not in set(seen.gone)]
    course.load.responses += check_repeats(course, kept)


def _rebuilt_in_time(course: Course[Sides], seen: Destroyed) -> None:
    course.report.figures["events copied"] = seen.rebuilt.events
    course.report.at_most(
        "seconds until there is a second copy again",
        seen.rebuilt.seconds,
        REBUILD_SECONDS + seen.rebuilt.events / EVENTS_PER_SECOND,
    )


def _the_copy_is_equal(course: Course[Sides], seen: Destroyed) -> None:
    pair, survivor, copy = course.rig.pair, course.rig.other, course.rig.active
    course.show("comparing both sites")
    pair.await_rest(survivor)
    pair.await_mirrored(survivor, copy)
    check_equal(course.report, survivor, copy)
    gone = set(seen.gone)
    responses = [response for response in course.load.responses if response.command_id not in gone]
    judge(
        course.report, survivor.bootstrap, responses, database_url=survivor.database_url, torn=seen.done.torn
    )


DESTROYED = Drill(
    "site-destroyed",
    "Lose the active site with its disks, continue at the other, and copy it back to an empty machine.",
    rig=both_sites,
    clients=Clients("d"),
    faults=_destroy,
    promises=(
        all_have_outcomes,
        _little_is_lost,
        _keys_outlive_the_disk,
        _rebuilt_in_time,
        _the_copy_is_equal,
    ),
)
