"""The mirror under load: killed with -9 again and again, and cut off, slowed down and let go again."""

from __future__ import annotations

import time

from infra.base.waiting import wait_until
from infra.dr.mirror_position import MirrorLag, mirror_lag
from infra.dr.overview import overview
from infra.dr.steps import Show
from infra.lab.drills.aborts import Aborts
from infra.lab.drills.damage import cut, heal
from infra.lab.drills.drill import Clients, Course, Drill, all_answered, whole
from infra.lab.drills.judging import judge, not_logged
from infra.lab.drills.load import Load
from infra.lab.drills.pair import DrillFailed, Pair
from infra.lab.drills.planned import check_equal
from infra.lab.drills.report import DrillReport
from infra.stack.link import LinkState, set_links
from infra.stack.platform import SiteProcess
from infra.stack.shop import MIRROR
from infra.stack.site import Site

KILLS = 2
BACK_SECONDS = 90.0
BETWEEN = (2.0, 6.0)
APART = (8.0, 16.0)
LATE_MS = 100
CATCH_UP_SECONDS = 60.0


def _kill(course: Course, kills: int) -> Aborts:
    active, passive = course.sides.active, course.sides.other
    aborts = course.running.enter_context(Aborts(active.bootstrap))
    for number in range(1, kills + 1):
        course.show(f"kill {number} of {kills}")
        course.sleep(BETWEEN)
        back = _killed(course.pair, passive)
        course.report.at_most(f"kill {number}: from the kill to a mirror that copies", back, BACK_SECONDS)
    course.report.story.append(f"The mirror {active.name} → {passive.name} was killed {kills} times.")
    return aborts


def _aborts_are_counted(course: Course, aborts: Aborts) -> None:
    course.report.figures["records in aborted transactions"] = aborts.records
    course.report.story.append(
        f"{len(course.load.told)} commands were answered, {aborts.records} records written and aborted."
    )


def _cut_and_delay(course: Course) -> None:
    pair, report, active, passive = course.pair, course.report, course.sides.active, course.sides.other
    apart = course.chance.uniform(*APART)
    course.show(f"cut off for {apart:.0f} s")
    cut(pair)
    time.sleep(apart)
    told = overview(pair.sites)
    unknown = told.mirror is not None and told.mirror.events is None
    report.promise("the lag while they are cut off", "said to be unknown", str(told.mirror), unknown)
    heal(pair)
    course.show("catching up")
    began = time.monotonic()
    behind = _close(active, passive)
    took = time.monotonic() - began
    report.at_most("from contact to a mirror that is close again", took, CATCH_UP_SECONDS)
    report.figures["events behind at contact"] = behind
    course.show(f"{LATE_MS} ms late")
    set_links(pair.sites.values(), LinkState(delay_ms=LATE_MS))
    time.sleep(6)
    canary = next(site.canary_seconds for site in overview(pair.sites).sites if site.name == passive.name)
    heal(pair)
    seen = canary is not None and LATE_MS / 1000 <= canary < 5
    report.promise(f"the canary's delay, {LATE_MS} ms away", "told", f"{canary} s", seen)
    report.story.append(
        f"Cut off for {apart:.1f} s, {behind} events behind then, close again after {took:.1f} s."
    )


def _passive_is_sound(course: Course, _: object) -> None:
    sides = course.sides
    judge_passive(course.pair, course.report, sides.active, sides.other, course.load, course.run.show)


def judge_passive(
    pair: Pair, report: DrillReport, active: Site, passive: Site, load: Load, show: Show
) -> None:
    """The mirrored log is judged as the active one would be, and both must be equal."""
    show("coming to rest")
    pair.await_rest(active)
    pair.await_mirrored(active, passive)
    report.nothing(
        "acknowledged writes that the passive site misses", not_logged(passive.bootstrap, load.told)
    )
    judge(report, passive.bootstrap, load.told, database_url=passive.database_url)
    check_equal(report, pair)


def _killed(pair: Pair, passive: Site) -> float:
    """Kill the mirror; answers the seconds until its successor has let a canary through."""
    before = _mirror(pair, passive)
    if not before.running:
        raise DrillFailed(f"no mirror runs at {passive.name}")
    began = time.monotonic()
    pair.platform.kill(passive, MIRROR)
    wait_until(
        lambda: _mirror(pair, passive),
        f"the mirror at {passive.name} comes back",
        2 * BACK_SECONDS,
        enough=lambda now: now.ready and now.life != before.life,
        error=DrillFailed,
    )
    return time.monotonic() - began


def _mirror(pair: Pair, site: Site) -> SiteProcess:
    mirror = pair.platform.processes(site).get(MIRROR)
    if mirror is None:
        raise DrillFailed(f"{site.name} has no mirror")
    return mirror


def _close(active: Site, passive: Site) -> int:
    """Wait until the mirror is less than a second behind; answers how many events it was behind at first.

    Raises DrillFailed.
    """
    seen: list[MirrorLag] = []

    def lag() -> MirrorLag:
        seen.append(mirror_lag(active.link, passive.bootstrap, active.name, seconds=5))
        return seen[-1]

    wait_until(
        lag,
        f"the mirror into {passive.name} catches up",
        2 * CATCH_UP_SECONDS,
        enough=lambda lag: lag.oldest_seconds <= 1,
        later=(TimeoutError,),  # contact takes a moment
        error=DrillFailed,
    )
    return seen[0].total


def mirror_crash(kills: int = KILLS) -> Drill[Aborts]:
    """The drill with so many kills; roles stay."""
    return Drill(
        "mirror-crash",
        "Kill the mirror twice under load, with aborted transactions: nothing is doubled or missing.",
        rig=whole,
        clients=Clients("m"),
        faults=lambda course: _kill(course, kills),
        promises=(_aborts_are_counted, all_answered, _passive_is_sound),
    )


MIRROR_LAG = Drill(
    "mirror-lag",
    "Cut the link between the sites under load, then delay it: the lag must be reported and caught up.",
    rig=whole,
    clients=Clients("l"),
    faults=_cut_and_delay,
    promises=(all_answered, _passive_is_sound),
)
