"""Moves that nothing may lose, under load: a planned switchover, and the failback to a site that was lost."""

import time
from pathlib import Path

import msgspec

from infra.dr.failover import Failover
from infra.dr.plan import controls, newest_active
from infra.dr.rebuild import Failback
from infra.lab.drills.drill import Clients, Course, Drill, DrillFailed, Range, Run, all_have_outcomes
from infra.lab.drills.judgement import check_equal, check_nothing_lost, check_repeats, judge, not_logged
from infra.lab.drills.pair import Following, Kind, Pair, Sides, both_sites
from infra.lab.drills.report import RTO, step_line, write
from infra.lab.drills.takeover import lost_broker_seconds, reads_go_on, unplanned
from infra.log.control import PATIENT_SECONDS
from infra.stack.shop import MIRROR
from infra.stack.site import Site

WITHOUT_WRITES_SECONDS = 15.0
WARM = (5.0, 12.0)
WARM_BEFORE_FAILBACK = (3.0, 6.0)
AFTER_SECONDS = 8.0


def _typed(course: Course[Sides], warm: Range, *command: str) -> tuple[float, str]:
    """When the command for the other site was typed, in seconds since 1970, and what it printed. Clients follow it."""
    other, epoch = course.rig.other, course.rig.epoch
    course.sleep(warm)
    course.show(f"{command[0]} to {other.name}")
    typed = time.time()
    with Following(course.load, other, epoch):
        output = course.rig.pair.run(*command, other.name, "--json")
    time.sleep(AFTER_SECONDS)
    return typed, output


def _switch_over(course: Course[Sides]) -> float:
    """When the command was typed, in seconds since 1970."""
    typed, output = _typed(course, WARM, "failover", "--planned", "--to")
    done = msgspec.json.decode(output, type=Failover)
    course.report.story += map(step_line, done.steps)
    return typed


def _fail_back(course: Course[Sides]) -> None:
    _, output = _typed(course, WARM_BEFORE_FAILBACK, "failback", "--confirm")
    done = msgspec.json.decode(output, type=Failback, dec_hook=lambda _, text: Path(text))
    rebuilt = done.rebuilt.steps if done.rebuilt is not None else ()
    course.report.story += map(step_line, (*rebuilt, *done.switchover.steps, *done.steps))


def _pauses_of_failback_are_short(course: Course[Sides], _: object) -> None:
    _check_write_gap(course, course.load.responses[0].at)
    gap = course.reads.gap()
    course.report.at_most("longest time without reads at the site that stayed", gap, WITHOUT_WRITES_SECONDS)


def _check_write_gap(course: Course[Sides], start: float) -> None:
    bound = WITHOUT_WRITES_SECONDS + lost_broker_seconds(course)
    course.report.at_most(RTO, course.write_gap(start), bound)


def _old_keys_hold(course: Course[Sides], _: object) -> None:
    course.show("repeats of what was acknowledged before")
    course.load.responses += check_repeats(course, course.load.responses)


def nothing_is_lost(course: Course[Sides], _: object) -> None:
    """Every acknowledged write is in the log of the new site, which is sound."""
    new = course.rig.other
    course.report.none("acknowledged writes lost", not_logged(new.bootstrap, course.load.responses))
    course.show("coming to rest")
    course.rig.pair.await_rest(new)
    judge(course.report, new.bootstrap, course.load.responses, database_url=new.database_url)


def report_names_nothing(course: Course[Sides], _: object) -> None:
    """Asks for losses where there are none, while the reversed mirror runs."""
    course.show("failover report")
    check_nothing_lost(course.report, course.rig.pair, course.run.folder)


def sites_are_equal(course: Course[Sides], _: object) -> None:
    course.show("comparing both sites")
    pair = course.rig.pair
    active, passive, _epoch = pair.roles()
    pair.await_mirrored(active, passive)
    check_equal(course.report, active, passive)


def _after_a_loss(run: Run) -> Sides:
    """A site that is lost, and the other active; where both are well, one is lost first."""
    pair: Pair = run.target
    active, epoch = _newest_active(pair)
    if MIRROR not in pair.other(active).journal.held():  # a mirror follows: no site was lost
        folder = run.folder / "loss"
        before = unplanned(Kind.DEAD).run(pair, run.seed, folder, run.show)
        write(before, folder)
        kept = "all promises were kept" if before.passed else "NOT all promises were kept"
        run.report.story.append(f"First a site was lost: {kept}, see {folder}.")
        active, epoch = _newest_active(pair)
    return Sides(pair, active, pair.other(active), epoch, pair.urls, active.name, reads_at=active.name)


def _newest_active(pair: Pair) -> tuple[Site, int]:
    """The active site of the newest epoch; the other may be down."""
    states = controls(pair.sites, PATIENT_SECONDS)
    name = newest_active(states)
    state = states[name] if name is not None else None
    if name is None or state is None:
        raise DrillFailed("no site is active")
    return pair.sites[name], state.role.epoch


PLANNED = Drill(
    "planned",
    "Switch over under load: nothing may be lost, and both sites must be equal afterwards.",
    rig=both_sites,
    clients=Clients("p"),
    faults=_switch_over,
    promises=(
        all_have_outcomes,
        _check_write_gap,
        reads_go_on,
        _old_keys_hold,
        nothing_is_lost,
        report_names_nothing,
        sites_are_equal,
    ),
)

FAILBACK = Drill(
    "failback",
    "Lose a site, rebuild it and fail back to it under load: nothing is lost, nothing is copied twice.",
    rig=_after_a_loss,
    clients=Clients("b"),
    faults=_fail_back,
    promises=(
        all_have_outcomes,
        _pauses_of_failback_are_short,
        nothing_is_lost,
        report_names_nothing,
        sites_are_equal,
    ),
    minutes=18,
)
